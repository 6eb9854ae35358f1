"""Faults by which a site reveals data outside of noisy sums: by a refusal, a count or a failure."""

from __future__ import annotations

from mutations.fault import Edit, Fault

# Each of them makes a reply depend on private rows.
DISCLOSURES = [
    # Refusals and counts that depend on values.
    Fault(
        "undeclared-code-refuses",
        "a value outside the declared codes makes a site refuse after it has consented",
        (
            Edit(
                "site.site:Site._fits",
                "statistic.check(self.units)",
                "statistic.check(self.units), statistic.check_values(self.units)",
            ),
        ),
    ),
    Fault(
        "count-under-add-remove",
        "the exact number of units is sent with the consent where it is data",
        (
            Edit(
                "site.site:Site.handle[Propose]",
                "self.schema.units if plan.adjacency is Adjacency.REPLACE_ONE else None",
                "len(self.units)",
            ),
        ),
    ),
    # Accounting of attempts and reservations.
    Fault(
        "attempt-at-half-rate",
        "another attempt at a step of a sampled phase is charged at half its sampling rate",
        (Edit("site.budget:spend_of", "planned.sampled.rate", "planned.sampled.rate / (2 if attempt else 1)"),),
    ),
    Fault(
        "endless-reservation",
        "steps are drawn from a reservation without limit",
        (Edit("site.ledger:Ledger.draw", "if standing.left < 1:", "if False:"),),
    ),
    # Refusals caused by single cells, levels, labels and runs.
    Fault(
        "cell-refuses",
        "a cell that a plan's categories or tokens make unfit ends in a refusal",
        (
            Edit(
                "study.site_schema:served_units",
                "load_for(plan, site, schema, faults)",
                "load_for(plan, site, schema)",
            ),
        ),
    ),
    Fault(
        "level-refuses",
        "a level that a design does not name ends in a refusal",
        (Edit("study.site_data:_load", "strict=faults is None", "strict=True"),),
    ),
    Fault(
        "missing-value-refuses",
        "a missing value makes a site refuse a plan without a rule",
        (
            Edit(
                "site.site:Site._review",
                "for refusal in self.schema.refusals(plan, position):",
                "self.units.check(range(self.units.columns) if plan.question.missing else ())\n"
                "    for refusal in self.schema.refusals(plan, position):",
            ),
        ),
    ),
    Fault(
        "label-refuses",
        "a label of the site's own schema that a plan does not name ends in a refusal",
        (Edit("data.tables:load_units", "strict=faults is None", "strict=True"),),
    ),
    # Databases: one row for each person, and columns that mean what a plan states.
    Fault(
        "person-twice",
        "a person whom a table of an OMOP database repeats is several units",
        (
            Edit(
                "data.omop:Definitions._parts",
                "FROM {at}person GROUP BY person_id",
                "FROM {at}person GROUP BY person_id, year_of_birth",
            ),
        ),
    ),
    Fault(
        "definition-ignored",
        "a site takes part in a study that defines a column otherwise",
        (Edit("study.site_data:_definition_refusals", "declared.definition != stated[name]", "False"),),
    ),
    # Public number of units that depends on preprocessing.
    Fault(
        "moved-and-dropped",
        "people who moved too much leave the public number of units",
        (
            Edit(
                "data.imaging:load_images",
                "scans, notes = _still(people, scans)",
                "scans, notes = _still(people, scans); scans = [own for own in scans if own]",
            ),
        ),
    ),
    Fault(
        "unselected-and-dropped",
        "people without a selected recording leave the public number of units",
        (
            Edit(
                "data.bids:_bids",
                "people[name] = _selected(folder, whole[name], selection)",
                "people |= {name: own} if (own := _selected(folder, whole[name], selection)) else {}",
            ),
        ),
    ),
    Fault(
        "run-refuses",
        "a run that a band or confounds make unfit ends in a refusal",
        (Edit("study.site_data:_images", "faults=runs", "faults=None"),),
    ),
    # Failures after consent.
    Fault(
        "part-published",
        "a publication of a part of the units fails if any unit is left out",
        (
            Edit("kernel.request:PrivatePublication.__post_init__", "if not self.statistic.every_unit:", "if False:"),
            Edit("site.site:Site._values", "if len(rows) != len(self.units):", "if False:"),
        ),
    ),
    Fault(
        "failure-for-nothing",
        "a contribution that fails is not charged, and can be asked for again",
        (
            Edit(
                "site.site:Site.handle[Contribute]",
                "except Exception:",
                "except ZeroDivisionError:",
            ),
        ),
    ),
    # Schema and data must be those that the steward checked.
    Fault(
        "unconfirmed-schema",
        "a site serves by a schema that its steward did not confirm",
        (Edit("study.site_schema:confirmed_schema", "if known != schema.digest():", "if False:"),),
    ),
    Fault(
        "changed-data-served",
        "data that changed since they were compared with the schema are read under it",
        (Edit("study.site_schema:_check_version", "if current != version:", "if False:"),),
    ),
]
