"""An entry for the Differential Privacy Deployments Registry (registry.opendp.org), as JSON.

The fields are those of the template in the registry's public repository `opendp/deployments-registry-data`
(`tests/good_deployments/template.yaml`). Its schema changes often: compare before an entry is sent in. The registry
takes YAML, of which JSON is a part. The JSON schema of these models is shipped as `registry.schema.json` beside this
module.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zerosum.errors import BadInput, first_fault
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.report.dossier_facts import DOES_NOT_APPLY, NOT_STATED, Facts
from zerosum.report.dossier_questions import MODELS, reads
from zerosum.report.guarantee_text import description, study_title
from zerosum.report.number_format import format_number
from zerosum.version import VERSION

SCHEMA = Path(__file__).with_name("registry.schema.json")

Said = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    """Base of all parts: unknown fields are errors, as in the registry."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Curator(_Entry):
    """An organisation that publishes the data product."""

    data_curator_name: Said
    data_curator_type: Literal["Academic", "Government", "Industry", "Nonprofit"] | None = None


class Basic(_Entry):
    """Tier 1: what is published, by whom and for what."""

    name: Said
    data_curators: tuple[Curator, ...] = Field(min_length=1)
    description: Said
    intended_use: Said
    data_product_type: Literal["Summary statistics", "Machine learning model", "Dataset", "Synthetic data"]
    data_product_region: Said
    data_product_sector: Literal["Education", "Government", "Healthcare", "Technology"] | None = None
    publication_date: date


class Variant(_Entry):
    """The variant of differential privacy."""

    variant_name: Literal["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"]
    data_domain: Said
    unprotected_quantities: Said


class Parameters(_Entry):
    """Epsilon and delta, or rho."""

    epsilon: float = Field(gt=0)
    delta: float = Field(ge=0, lt=1)


class PrivacyLoss(_Entry):
    """The unit of privacy and the parameters."""

    privacy_unit: Said
    privacy_unit_details: Said
    number_of_privacy_units: int | None = Field(default=None, gt=0)
    privacy_parameters: Parameters
    privacy_parameters_details: Said


class DeploymentModel(_Entry):
    """Trust model, actors and kind of release."""

    model_name: Literal["Local", "Central", "Shuffle", "Federated"]
    model_name_details: Said
    trust_assumptions: Said
    actors: Said
    release_type: Literal["One release", "Many releases"]
    release_type_details: Said
    data_source_type: Literal["Static", "Dynamic"]
    data_source_type_details: Said
    access_type: Literal["Interactive", "Non-interactive"]
    access_type_details: Said


class Implementation(_Entry):
    """Mechanisms, accounting and reasons."""

    preprocessing_and_hyperparameter_tuning: Said
    mechanisms: Said
    composition: Said
    post_processing: Said
    justification: Said
    utility: Said
    additional_information: Said


class Administrative(_Entry):
    """State of the entry."""

    status: Literal["Draft", "Pending", "Changes Required", "Approved"]
    registry_authors: tuple[Said, ...] = Field(min_length=1)
    tier: Literal[1, 2, 3]


class Deployment(_Entry):
    """A deployment of differential privacy."""

    basic: Basic
    dp_variant: Variant
    privacy_loss: PrivacyLoss
    deployment_model: DeploymentModel
    implementation: Implementation
    administrative: Administrative


class RegistryEntry(_Entry):
    """One entry of the registry."""

    url_slug: Annotated[str, Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    deployment: Deployment

    def to_json(self) -> bytes:
        """JSON text."""
        return self.model_dump_json(indent=1, exclude_none=True).encode() + b"\n"

    @classmethod
    def parse(cls, text: bytes) -> RegistryEntry:
        """Read and validate an entry. Raises `BadInput` with the first fault."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise BadInput(f"this is no entry of the registry: {first_fault(error)}") from None


def json_schema() -> str:
    """The JSON schema of an entry, as the shipped file has it."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **RegistryEntry.model_json_schema(),
    }
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def registry_entry(facts: Facts) -> RegistryEntry | None:
    """The entry of a study; None for a run without differential privacy.

    Parameters
    ----------
    facts : Facts
        What the fields are taken from.
    """
    plan = facts.plan
    if not plan.private:
        return None
    title = study_title(plan.study)
    slug = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-") or "study"
    controller = plan.question.permit.get("controller")
    kind = plan.question.permit.get("controller_kind")
    curator = {"data_curator_name": controller or facts.permit("controller"), "data_curator_type": kind}
    return RegistryEntry.model_validate(
        {
            "url_slug": f"{slug[:80].strip('-')}-{plan.proposal_digest[:8]}",
            "deployment": {
                "basic": _basic(facts, title, curator),
                "dp_variant": _variant(facts),
                "privacy_loss": _privacy_loss(facts),
                "deployment_model": _model(facts),
                "implementation": _implementation(facts),
                "administrative": {
                    "status": "Draft",
                    "registry_authors": [plan.question.permit.get("contact") or facts.permit("contact")],
                    "tier": 3,
                },
            },
        }
    )


def _basic(facts: Facts, title: str, curator: dict[str, Any]) -> dict[str, Any]:
    plan = facts.plan
    published = any(release.kind == "publication" for release in plan.releases)
    product = "Machine learning model" if plan.algorithm in MODELS else "Dataset" if published else "Summary statistics"
    return {
        "name": title,
        "data_curators": [curator],
        "description": f"{len(plan.sites)} sites computed {description(plan.algorithm)} together, of "
        f"{counted(plan.question.n_columns, 'column')}.",
        "intended_use": facts.purpose,
        "data_product_type": "Synthetic data" if plan.algorithm == "synthetic-data" else product,
        "data_product_region": facts.permit("region"),
        "data_product_sector": plan.question.permit.get("sector"),
        "publication_date": datetime.now(UTC).date(),
    }


def _variant(facts: Facts) -> dict[str, Any]:
    plan = facts.plan
    counts = any(site.units is not None for site in plan.sites) or facts.report.adjacency == "replace-one"
    return {
        "variant_name": "Approximate DP",
        "data_domain": f"All data sets of the {len(plan.sites)} sites with the columns "
        f"{', '.join(plan.question.columns[:20])}, in which a unit belongs to one site.",
        "unprotected_quantities": "The number of units at each site, and which sites took part in which round."
        if counts
        else "Which sites took part in which round.",
    }


def _privacy_loss(facts: Facts) -> dict[str, Any]:
    plan, report = facts.plan, facts.report
    worst = max(line.mu for line in report.per_site)
    number = "" if facts.units else " The number of units is not in the plan."
    return {
        "privacy_unit": f"{plan.unit.capitalize()}-level",
        "privacy_unit_details": f"The unit is {facts.unit}. Data sets are adjacent if {facts.neighbours}.{number}",
        "number_of_privacy_units": facts.units,
        "privacy_parameters": {"epsilon": float(facts.epsilon), "delta": plan.delta},
        "privacy_parameters_details": f"Exact for the whole study, against {facts.adversary}. The study asked for at "
        f"most epsilon {format_epsilon(plan.epsilon)}. It is mu-Gaussian-DP with mu = {format_number(worst, 5)} at "
        "the site with the largest cost (with sub-sampling or Laplace noise, the mu of one sum of equal epsilon). "
        f"The best test between two candidates for one unit is right in at most {facts.guess(facts.promise)} of cases.",
    }


def _model(facts: Facts) -> dict[str, Any]:
    plan = facts.plan
    central = plan.scheme.facts.sees_data
    return {
        "model_name": "Central" if central else "Federated",
        "model_name_details": f"Scheme {plan.scheme.name}: {reads(facts)}.",
        "trust_assumptions": f"Trusted beside each site with its own records: {plan.scheme.facts.trusted_party}. "
        f"{plan.coalition.colluders} of {len(plan.sites)} sites may collude"
        + (" with other readers." if central else " with the coordinator.")
        + f" The guarantee allows for {facts.lost} in a round.",
        "actors": f"Sites: {', '.join(site.name for site in plan.sites)}; one coordinator; readers of the result. "
        f"Adversary: {facts.adversary}.",
        "release_type": "One release" if plan.rounds == 1 else "Many releases",
        "release_type_details": f"{counted(len(plan.releases), 'release')} in {counted(plan.rounds, 'round')}, once, "
        "at one total cost. Later studies on the same people are charged to the ledgers of the sites, up to their "
        "caps.",
        "data_source_type": "Static",
        "data_source_type_details": "The records at the sites when the study ran.",
        "access_type": "Non-interactive",
        "access_type_details": "The plan lists all releases before data are read. A site answers no other request.",
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    plan, report = facts.plan, facts.report
    sampled = [release for release in plan.releases if release.sampled is not None]
    rates = ", ".join(format_number(release.sampled.rate) for release in sampled if release.sampled is not None)
    lines = [
        f"{line.statistic}: {line.size} numbers, sensitivity {format_number(line.sensitivity)}, noise of standard "
        f"deviation {format_number(line.noise_std)} ({line.noise})"
        for line in report.releases[:20]
    ]
    contact = plan.question.permit.get("contact") or facts.permit("contact")
    number = plan.question.permit.get("number") or facts.permit("number")
    dated = "" if facts.result else " Nothing is published yet: publication_date is the day of this draft."
    steps = ", ".join(sorted(plan.question.preprocessing)) or "none beside scaling by public ranges"
    return {
        "preprocessing_and_hyperparameter_tuning": f"Preparation, unit by unit: {steps}. Hyper-parameters are in the "
        "plan, chosen by the analyst or from public facts, at no privacy cost. Bounds are public and were set before "
        "data were read.",
        "mechanisms": f"Clipped sums with {facts.noise}. Library: Zerosum {VERSION}. {'; '.join(lines)}. Noise from "
        "the operating system's generator.",
        "composition": ("Exact composition of privacy losses over all releases and repeated rounds" if sampled else
                        "Gaussian differential privacy, exact over all releases and repeated rounds")
        + (f"; Poisson sub-sampling at rates {rates}." if sampled else "; no sub-sampling."),
        "post_processing": "Estimates, intervals and pictures are functions of the released sums and of public facts.",
        "justification": "Scheme, budget and threat model were chosen in the study file and accepted by each site's "
        f"policy. {NOT_STATED}the reasons for this epsilon; the controller adds them.",
        "utility": f"Noise of each release as above; {counted(len(facts.result.warnings), 'warning')} in the report."
        if facts.result
        else f"{NOT_STATED}the study was not run, or no result was given. Noise of each release as above.",
        "additional_information": f"Contact: {contact}. Permit: {number}. Plan {report.plan_digest}.{dated} "
        f"{DOES_NOT_APPLY}evidence_sources: the signed dossier beside this file is the evidence.",
    }  # fmt: skip
