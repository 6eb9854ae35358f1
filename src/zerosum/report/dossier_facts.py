"""What a dossier is filled from: plan, result, and policy and ledger of sites; and its questions with their answers.

An entry that no source has is never empty. It has `NOT_STATED` or `DOES_NOT_APPLY` with the reason, so that a reader of
the page and a program that reads its JSON can find all open entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.recipients import Recipient, recipients
from zerosum.report.document import Table
from zerosum.report.record import PrivacyReport, Result, adversary, privacy_report
from zerosum.site.policy import Policy

# First words of entries without a content.
NOT_STATED, DOES_NOT_APPLY = "Not stated: ", "Does not apply: "

# Entries of the table [permit] of a study file, by what they are called in texts.
PERMIT = {
    "number": "Number of the permit or of the ethics vote",
    "authority": "Authority that gave it",
    "valid_until": "Valid until",
    "legal_basis": "Legal basis",
    "controller": "Controller (organisation that answers for the study)",
    "controller_kind": "Kind of organisation",
    "contact": "Contact",
    "region": "Region of the data, or whose law applies",
    "sector": "Sector",
    "retention": "Retention of result and journal",
}


@dataclass(frozen=True)
class SiteFacts:
    """Policy and ledger of a site whose file was given.

    Attributes
    ----------
    name : str
        The site.
    policy : Policy
        Its policy.
    ledger : mapping, optional
        `zerosum.site.ledger_summary.statement`; None if there is no ledger yet.
    """

    name: str
    policy: Policy
    ledger: Mapping[str, Any] | None


@dataclass(frozen=True)
class Facts:
    """Everything that a dossier is filled from.

    Attributes
    ----------
    plan : Plan
        The plan.
    result : Result, optional
        The result, if the study was run.
    sites : sequence of SiteFacts
        Sites whose own files were given.
    draft : bool
        Whether the plan was made for the dossier from a study file.
    """

    plan: Plan
    result: Result | None = None
    sites: Sequence[SiteFacts] = ()
    draft: bool = False

    @cached_property
    def report(self) -> PrivacyReport:
        """Exact costs of the plan."""
        return privacy_report(self.plan)

    @cached_property
    def recipients(self) -> dict[str, Recipient]:
        """Recipients by name."""
        return {each.name: each for each in recipients(self.plan)}

    @property
    def units(self) -> int | None:
        """Number of units of all sites, if the plan has it."""
        counts = [site.units for site in self.plan.sites]
        return None if None in counts else sum(each or 0 for each in counts)

    @property
    def epsilon(self) -> str:
        """Largest exact epsilon as text."""
        return format_epsilon(self.report.worst_epsilon)

    @property
    def unit(self) -> str:
        """The protected unit in words."""
        return "a person with all their rows" if self.plan.unit == "person" else "one record (row)"

    @property
    def neighbours(self) -> str:
        """The neighbouring relation in words."""
        change = "replaced by that of another" if self.report.adjacency == "replace-one" else "added or left out"
        kind = "bounded, replace-one" if self.report.adjacency == "replace-one" else "unbounded, add-remove"
        return f"the data of one {self.plan.unit} of one site are {change} ({kind})"

    @property
    def adversary(self) -> str:
        """The adversary of the stated epsilon."""
        if not self.plan.private:
            return "none: this run protects no unit"
        if self.plan.scheme.facts.sees_data:
            return "a reader of the result; the coordinator sees the data and is trusted"
        return adversary(self.plan.coalition.colluders)

    @property
    def noise(self) -> str:
        """The noise laws of the releases in words."""
        if not self.plan.scheme.facts.noisy:
            return "no noise"
        laws = []
        if any(not release.laplace for release in self.plan.releases):
            gridded = all(self.plan.gridded(release) for release in self.plan.releases if not release.laplace)
            laws.append("discrete Gaussian noise" if gridded else "Gaussian noise in double precision")
        if any(release.laplace for release in self.plan.releases):
            laws.append("discrete Laplace noise")
        return " and ".join(laws)

    def permit(self, entry: str) -> str:
        """An entry of the permit, or the reason why it is missing."""
        return self.plan.question.permit.get(entry) or f"{NOT_STATED}the study file has no entry '{entry}' in [permit]"

    @property
    def purpose(self) -> str:
        """The purpose, or the reason why it is missing."""
        return self.plan.question.purpose or f"{NOT_STATED}the study file has no entry 'purpose'"

    def guess(self, name: str) -> str:
        """Best guess of a recipient as a percentage."""
        each = self.recipients[name]
        return f"{'' if each.exact else 'at most '}{percentage(each.best_guess)}"

    @property
    def lost(self) -> str:
        """The losses that the figures allow for."""
        return counted(self.plan.coalition.dropouts, "lost site") if self.plan.coalition.dropouts else "no lost site"

    @property
    def coalition(self) -> str:
        """The sites that may collude."""
        return "any one site" if self.plan.coalition.colluders == 1 else f"any {self.plan.coalition.colluders} sites"

    @property
    def promise(self) -> str:
        """Name of the recipient that the stated epsilon is about."""
        if self.plan.scheme.facts.sees_data:
            return "reader"
        return "coalition" if self.plan.coalition.colluders else "coordinator"


def percentage(share: float) -> str:
    """A probability as a percentage, rounded up.

    >>> percentage(0.55334), percentage(1.0)
    ('55.34 %', '100 %')
    """
    return "100 %" if share >= 1 else f"{format_epsilon(100 * share)} %"


def odds(epsilon: float) -> str:
    """exp(epsilon) as text; very large values by their magnitude.

    >>> odds(1.0), odds(800.0)
    ('2.718', 'more than 1e+300')
    """
    return f"{math.exp(epsilon):.4g}" if epsilon < 690 else "more than 1e+300"


def answers(title: str, rows: Sequence[tuple[str, str]], heading: tuple[str, str] = ("question", "answer")) -> Table:
    """Questions with their answers as a table."""
    return Table(title, heading, tuple(rows))
