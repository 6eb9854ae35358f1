"""A site's own policy: whose data it holds, how much of it may be spent, and what it takes part in.

The policy is the site's file, not the coordinator's. It names the population (the same people in two studies
share one ledger), the lifetime cap, and what is refused whatever a study says.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from platformdirs import user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from zerosum.errors import BadStudy, PolicyRefused
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.plan import MOST_PHASES, MOST_ROUNDS, Plan
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Noise
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap


class Policy(BaseModel):
    """What a site allows. Every setting but `population` has a careful default.

    >>> Policy(population="cohort 7").cap
    Cap(epsilon=10.0, delta=1e-05)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    population: str
    """Whose data these are: the same people in two studies share one ledger."""
    unit: Literal["person", "record"] = "person"
    """What the ledger protects."""
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    """The ledger's neighbours; a study must use the same."""
    epsilon: float = Field(10.0, strict=True)
    """With `delta`, the lifetime cap of the population."""
    delta: float = Field(1e-5, strict=True)
    """See `epsilon`."""
    study_epsilon: float | None = Field(None, strict=True)
    """The most that one study may cost, at its own delta, which must not be above the policy's."""
    most_phases: int = Field(MOST_PHASES, ge=0, le=MOST_PHASES, strict=True)
    """The most different sub-sampled phases in one study: the accounting of each takes this site about a second."""
    most_rounds: int = Field(MOST_ROUNDS, ge=1, le=MOST_ROUNDS, strict=True)
    """The most rounds in one study, steps of phases and further attempts included."""
    statistics: tuple[str, ...] | None = None
    """What may be computed, by the names of statistics: by default every built-in one, and none that was registered."""
    columns: tuple[str, ...] | None = None
    """The only columns of the data that studies may read; by default any. A regression makes columns of its own from
    them, such as `sex=m`: name `sex` here."""
    minimum_units: int = Field(10, ge=1, strict=True)
    """Fewer units than this are refused."""
    minimum_colluders: int = Field(1, ge=0, strict=True)
    """Studies that plan for fewer colluders than this are refused, except `pooled` and `non-private` ones, which do
    not protect against the coordinator at all."""
    minimum_honest: int = Field(1, ge=1, strict=True)
    """Studies with fewer sites that neither collude nor are lost, this one included, are refused."""
    rows_per_unit: int | None = Field(None, ge=1, strict=True)
    """The most records a person has: a record-level study is then charged to the person as mu times this; without
    it such a study is refused."""
    data: Literal["private", "public", "synthetic"] = "private"
    """Whose they are: private data refuse `non-private`, `published` and seeds."""
    trusted_coordinator: bool = Field(False, strict=True)
    """Whether private data may go to `pooled`, where the coordinator sees sums without noise, and to `cape-helper`,
    where it deals the noise that hides them."""
    publications: bool = Field(False, strict=True)
    """Whether a noisy record of every unit may be published; sums need no such leave."""
    roster: dict[str, str | tuple[str, ...]] | None = None
    """The only sites to join with, and the identities they must have in hex, several while a key is being replaced;
    by default any."""
    coordinator: str | tuple[str, ...] | None = None
    """Whose key a plan must pin, in hex, or several; by default anybody's, or none."""
    noise: tuple[Noise, ...] = Field(("gaussian", "laplace"), min_length=1)
    """The noise laws that a study may have. At the same epsilon and delta the coordinator learns more from a mean with
    `laplace`."""
    ledger: Path | None = None
    """The ledger's file, made if it does not exist; by default in the state folder, named after the population."""
    counter: Path | None = None
    """The counter that unmasks an old copy of the ledger, by default beside it; best on another disk."""

    @field_validator("population")
    @classmethod
    def _same_name(cls, population: str) -> str:
        """Spelt differently to the eye of a computer only, a population would have two ledgers."""
        # One form for composed and decomposed characters, and for any number of spaces: with two ledgers the same
        # people would have two caps.
        population = unicodedata.normalize("NFC", " ".join(population.split()))
        if not population:
            raise ValueError("a population must have a name, got an empty one")
        return population

    @field_validator("epsilon", "study_epsilon")
    @classmethod
    def _check_epsilon(cls, epsilon: float | None) -> float | None:
        if epsilon is not None:
            check_epsilon(epsilon)
        return epsilon

    @field_validator("roster")
    @classmethod
    def _check_roster(cls, roster: dict[str, str | tuple[str, ...]] | None) -> dict[str, str | tuple[str, ...]] | None:
        for name, known in (roster or {}).items():
            for identity in _keys(known):
                if not re.fullmatch("[0-9a-f]{64}", identity):
                    raise ValueError(f"the identity of {name!r} must be 64 digits in hex")
        return roster

    @field_validator("coordinator")
    @classmethod
    def _check_coordinator(cls, coordinator: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if not all(re.fullmatch("[0-9a-f]{64}", identity) for identity in _keys(coordinator)):
            raise ValueError("a coordinator's identity must be 64 digits in hex")
        return coordinator

    @property
    def coordinators(self) -> tuple[str, ...]:
        """The keys of coordinators that this site works with; none where any will do."""
        return _keys(self.coordinator)

    @field_validator("delta")
    @classmethod
    def _check_delta(cls, delta: float) -> float:
        check_delta(delta)
        return delta

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a policy from a TOML file; relative paths in it start from its folder."""
        try:
            fields = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadStudy(f"the policy {path} cannot be read: {error.strerror or error}") from error
        except ValueError as error:  # not UTF-8, or not TOML
            raise BadStudy(f"the policy {path} is not a TOML file: {error}") from error
        return cls.parse(fields, path.parent, f"the policy {path}")

    @classmethod
    def parse(cls, fields: Mapping[str, Any], folder: Path, called: str) -> Self:
        """A policy from its entries; relative paths start from `folder`.

        Parameters
        ----------
        fields : mapping
            Entries of a TOML table.
        folder : Path
            The folder of the file.
        called : str
            Description in messages.
        """
        entries = dict(fields)
        for name in ("ledger", "counter"):
            if isinstance(place := entries.get(name), str):
                # Absolute, since a process that changes its folder would otherwise open a second ledger.
                entries[name] = folder.absolute() / Path(place).expanduser()
        try:
            return cls.model_validate(entries)
        except ValidationError as error:
            raise BadStudy(f"{called} is wrong: {_first(error)}") from error

    @classmethod
    def throwaway(cls, name: str, ledger: Path, **settings: Any) -> Self:
        """A policy for synthetic data: it allows every study, and the caller deletes its ledger.

        Parameters
        ----------
        name : str
            The population.
        ledger : Path
            A ledger in a temporary folder.
        **settings
            Further settings, which replace those of synthetic data.
        """
        allowed: dict[str, Any] = {
            "epsilon": 1e6,
            "minimum_units": 1,
            "minimum_colluders": 0,
            "data": "synthetic",
            "trusted_coordinator": True,
            "publications": True,
        }
        return cls(population=name, ledger=ledger, **allowed | settings)

    @property
    def cap(self) -> Cap:
        """The lifetime cap of the population."""
        return Cap(self.epsilon, self.delta)

    @property
    def account(self) -> Account:
        """The owner of the ledger by this policy."""
        return Account(self.population, self.unit, self.adjacency.value, self.rows_per_unit)

    @property
    def ledger_path(self) -> Path:
        """Where the ledger is kept: as set, or in the user's state folder under a name of its own."""
        if self.ledger is not None:
            return self.ledger
        readable = re.sub("[^a-z0-9]+", "-", self.population.lower()).strip("-")[:40]
        # The readable part is ambiguous ("a b" and "a-b"); the digest keeps two populations in two files.
        digest = hashlib.sha256(self.population.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return ledger_folder() / f"{readable or 'population'}-{digest}.sqlite"

    @property
    def counter_path(self) -> Path:
        """Where the ledger's counter is kept: as set, or beside it."""
        return self.counter or self.ledger_path.with_name(f"{self.ledger_path.name}.counter")

    def open_ledger(self) -> Ledger:
        """Open the ledger for recording; it is created if there was none."""
        return Ledger.open(self.ledger_path, self.account, counter=self.counter)

    def review(self, plan: Plan, units: int | None, builtin: frozenset[str]) -> None:
        """Refuse a study that this policy does not allow; `units` is the declared number of units, None where that is
        not public."""
        for refusal in self.refusals(plan, units, builtin):
            raise refusal

    def refusals(self, plan: Plan, units: int | None, builtin: frozenset[str]) -> Iterator[PolicyRefused]:
        """Everything in a study that this policy does not allow.

        Parameters
        ----------
        plan : Plan
            The public plan.
        units : int or None
            The declared number of units; None where it is private or not known yet.
        builtin : frozenset of str
            Names of the statistics of this package, which are allowed unless the policy lists its own.

        Yields
        ------
        PolicyRefused
            One for each contradiction, so that a steward sees all of them at once.
        """
        too_large = list(self._review_size(plan))
        yield from too_large
        allowed = builtin if self.statistics is None else frozenset(self.statistics)
        if unknown := sorted({release.statistic for release in plan.releases} - allowed):
            yield PolicyRefused(
                f"this site's policy allows no statistic {', '.join(map(repr, unknown))}: it allows"
                f" {', '.join(sorted(allowed)) or 'none'}"
            )
        if units is not None and units < self.minimum_units:
            yield PolicyRefused(
                f"this site's policy asks for at least {self.minimum_units} units (minimum_units), its data hold fewer"
            )
        colluders = plan.coalition.colluders
        if colluders < self.minimum_colluders and not plan.scheme.facts.sees_data:
            yield PolicyRefused(
                f"this site's policy asks to be protected against at least {self.minimum_colluders} colluding sites, "
                f"the study plans for {colluders}"
            )
        # The noise of colluding sites is known to the coordinator, and the noise of lost sites is missing.
        honest = len(plan.sites) - colluders - plan.coalition.dropouts
        if honest < self.minimum_honest:
            yield PolicyRefused(
                f"this site's policy asks for at least {self.minimum_honest} honest sites that stay, the study counts "
                f"on {honest}"
            )
        yield from self._review_question(plan)
        if not too_large:  # else it would be accounted, which is what the bounds are to prevent
            yield from self._review_cost(plan)
        # A mu for replaced units and one for added units bound different distances and do not compose in one ledger.
        if plan.adjacency is not self.adjacency:
            yield PolicyRefused(
                f"this site's account counts {self.adjacency.value} neighbours, the study {plan.adjacency.value}"
                " ones: plan the study with the account's"
            )
        if plan.unit != self.unit and self.unit == "person" and self.rows_per_unit is None:
            yield PolicyRefused(
                f"this site protects each person, the study each {plan.unit}: plan it by person, or set"
                " rows_per_unit in the policy to the most rows a person has"
            )
        laws = {release.noise for release in plan.releases} if plan.scheme.facts.noisy else set()
        if strange := sorted(laws - set(self.noise)):
            allows = " and ".join(sorted(self.noise))
            yield PolicyRefused(
                f"this site's policy allows {allows} noise, the study has {' and '.join(strange)} noise: plan it with "
                f"noise = {self.noise[0]!r}, or set noise in the policy"
            )
        if not self.publications and any(release.kind == "publication" for release in plan.releases):
            yield PolicyRefused(
                "the study publishes a noisy record of every unit, which this site's policy does not allow: "
                "ask for sums, or set publications in the policy"
            )
        if self.data == "private":
            yield from self._review_private(plan)
        yield from self._review_roster(plan)

    def _review_size(self, plan: Plan) -> Iterator[PolicyRefused]:
        """Refuse a plan whose accounting would take long: it is bounded before it is accounted."""
        if plan.phases > self.most_phases:
            yield PolicyRefused(
                f"this site's policy allows a study {self.most_phases} different sub-sampled phases at most, this one "
                f"has {plan.phases}"
            )
        if (rounds := plan.rounds + plan.attempts) > self.most_rounds:
            yield PolicyRefused(
                f"this site's policy allows a study {self.most_rounds} rounds and attempts at most, this one has "
                f"{rounds}"
            )

    def _review_question(self, plan: Plan) -> Iterator[PolicyRefused]:
        """Refuse columns that the policy does not list. A plan with too many columns to name is refused, too."""
        if self.columns is not None:
            asked = plan.question
            if len(asked.columns) != asked.n_columns or not asked.columns:
                yield PolicyRefused("this site's policy names the columns it allows, the plan does not name its own")
            # Columns of the table, not those that a design makes from them: `sex` and not `sex=m`.
            elif strangers := [name for name in asked.sources if name not in self.columns]:
                yield PolicyRefused(f"this site's policy allows no column {', '.join(map(repr, strangers))}")

    def _review_cost(self, plan: Plan) -> Iterator[PolicyRefused]:
        """Refuse a study above `study_epsilon`, compared at the study's delta, which must not be above the policy's."""
        if self.study_epsilon is None or not plan.scheme.facts.noisy:
            return
        # The same noise has a smaller epsilon at a larger delta: without the first condition a plan could be admitted
        # by a choice of its delta.
        if plan.delta > self.delta or Cap(self.study_epsilon, self.delta).exceeded(plan.worst_epsilon):
            yield PolicyRefused(
                f"this site's policy allows a study epsilon {self.study_epsilon:g} at delta {self.delta:g} at most,"
                " this one costs more"
            )

    def _review_roster(self, plan: Plan) -> Iterator[PolicyRefused]:
        """Refuse a study with an unknown site or a site with another key, so that a coordinator cannot invent sites.

        If the policy lists coordinators, refuse a study whose coordinator has another key or none.
        """
        if self.coordinators and plan.coordinator not in self.coordinators:
            yield PolicyRefused("the plan does not pin the coordinator's identity that this site's policy does")
        if self.roster is None:
            return
        for site in plan.sites:
            if site.name not in self.roster:
                yield PolicyRefused(f"this site's policy has no site named {site.name!r} on its roster")
                continue
            if site.identity not in _keys(self.roster[site.name]):
                yield PolicyRefused(f"the plan pins another identity for {site.name!r} than this site's policy does")

    def _review_private(self, plan: Plan) -> Iterator[PolicyRefused]:
        """Refuse, for private data, all that gives no privacy against the coordinator, unless the policy trusts it."""
        only = "this site's data are private, and only public or synthetic data may"
        scheme, facts = plan.scheme.name, plan.scheme.facts
        if not facts.noisy:
            yield PolicyRefused(f"{only} go without noise: choose another scheme than {scheme!r}")
        if facts.sees_data and not self.trusted_coordinator:
            yield PolicyRefused(
                f"this site's data are private, and under the scheme {scheme!r} the coordinator sees them: "
                "choose another scheme, or set trusted_coordinator in the policy"
            )
        if facts.deals_noise and not self.trusted_coordinator:
            yield PolicyRefused(
                f"this site's data are private, and under the scheme {scheme!r} the coordinator deals the noise that "
                "is to hide them from it: choose another scheme, or set trusted_coordinator in the policy"
            )
        if plan.calibration != "exact":
            yield PolicyRefused(f"{only} be released under the calibration {plan.calibration!r}: choose 'exact'")
        if plan.seed is not None:
            yield PolicyRefused(f"{only} be used with noise that a seed predicts: take the seed out of the study")


def _keys(known: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """One key, several or none, as a tuple."""
    return (known,) if isinstance(known, str) else known or ()


def _first(error: ValidationError) -> str:
    """The first thing pydantic found, in one line."""
    found = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return f"there is no setting {name!r}, known are {', '.join(Policy.model_fields)}"
    if found["type"] == "missing":
        return f"the setting {name!r} is missing"
    if found["type"] == "value_error":  # from a check of ours, which says what it got
        return f"{name}: {found['msg'].removeprefix('Value error, ')}"
    return f"{name}: {found['msg'][0].lower()}{found['msg'][1:]}, got {found['input']!r}"


def state_folder() -> Path:
    """The user's state folder, or $ZEROSUM_STATE."""
    state = os.environ.get("ZEROSUM_STATE")
    return Path(state).expanduser() if state else user_state_path("zerosum")


def ledger_folder() -> Path:
    """Where ledgers lie unless a policy says otherwise."""
    return state_folder() / "ledgers"
