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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from platformdirs import user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from zerosum.errors import BadStudy, PolicyRefused
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.statistic import Adjacency
from zerosum.site.account import Account, Cap
from zerosum.site.ledger import Ledger


class Policy(BaseModel):
    """What a site allows. Every setting but `population` has a careful default.

    >>> Policy(population="cohort 7").cap
    Cap(epsilon=10.0, delta=1e-05)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    population: str
    unit: Literal["person", "record"] = "person"
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    epsilon: float = Field(10.0, strict=True)
    delta: float = Field(1e-5, strict=True)
    statistics: tuple[str, ...] | None = None  # None: every built-in one, no registered one
    minimum_units: int = Field(10, ge=1, strict=True)
    minimum_colluders: int = Field(1, ge=0, strict=True)
    rows_per_unit: int | None = Field(None, ge=1, strict=True)
    data: Literal["private", "public", "synthetic"] = "private"
    trusted_coordinator: bool = Field(False, strict=True)
    roster: dict[str, str] | None = None  # the only sites to join with, and their identities in hex; None: any
    ledger: Path | None = None
    counter: Path | None = None

    @field_validator("population")
    @classmethod
    def _same_name(cls, population: str) -> str:
        """Spelt differently to the eye of a computer only, a population would have two ledgers."""
        population = unicodedata.normalize("NFC", " ".join(population.split()))
        if not population:
            raise ValueError("a population must have a name, got an empty one")
        return population

    @field_validator("epsilon")
    @classmethod
    def _check_epsilon(cls, epsilon: float) -> float:
        check_epsilon(epsilon)
        return epsilon

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
        """A policy from its entries; relative paths start from `folder`."""
        entries = dict(fields)
        for name in ("ledger", "counter"):
            if isinstance(place := entries.get(name), str):
                entries[name] = folder.absolute() / Path(place).expanduser()
        try:
            return cls.model_validate(entries)
        except ValidationError as error:
            raise BadStudy(f"{called} is wrong: {_first(error)}") from error

    @property
    def cap(self) -> Cap:
        return Cap(self.epsilon, self.delta)

    @property
    def account(self) -> Account:
        return Account(self.population, self.unit, self.adjacency.value, self.rows_per_unit)

    @property
    def ledger_path(self) -> Path:
        """Where the ledger is kept: as set, or in the user's state folder under a name of its own."""
        if self.ledger is not None:
            return self.ledger
        readable = re.sub("[^a-z0-9]+", "-", self.population.lower()).strip("-")[:40]
        digest = hashlib.sha256(self.population.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return ledger_folder() / f"{readable or 'population'}-{digest}.sqlite"

    def open_ledger(self) -> Ledger:
        return Ledger.open(self.ledger_path, self.account, counter=self.counter)

    def review(
        self,
        *,
        scheme: str,
        calibration: str,
        seeded: bool,
        statistics: Iterable[str],
        units: int,
        unit: str,
        adjacency: Adjacency,
        colluders: int,
        builtin: frozenset[str],
    ) -> None:
        """Refuse a study that this policy does not allow, before any data is used."""
        allowed = builtin if self.statistics is None else frozenset(self.statistics)
        if unknown := sorted(set(statistics) - allowed):
            raise PolicyRefused(
                f"this site's policy allows no statistic {', '.join(map(repr, unknown))}: it allows"
                f" {', '.join(sorted(allowed)) or 'none'}"
            )
        if units < self.minimum_units:
            raise PolicyRefused(f"this site's policy asks for at least {self.minimum_units} units, its data hold fewer")
        if colluders < self.minimum_colluders and scheme not in ("pooled", "non-private"):
            raise PolicyRefused(
                f"this site's policy asks to be protected against at least {self.minimum_colluders} colluding sites, "
                f"the study plans for {colluders}"
            )
        if adjacency is not self.adjacency:
            raise PolicyRefused(
                f"this site's account counts {self.adjacency.value} neighbours, the study {adjacency.value}"
                " ones: plan the study with the account's"
            )
        if unit != self.unit and self.unit == "person" and self.rows_per_unit is None:
            raise PolicyRefused(
                f"this site protects each person, the study each {unit}: plan it by person, or set"
                " rows_per_unit in the policy to the most rows a person has"
            )
        if self.data == "private":
            self._review_private(scheme, calibration, seeded)

    def review_roster(self, identities: Mapping[str, str | None]) -> None:
        """Refuse a study with a site this policy does not know, or one with another key: nobody invents sites."""
        if self.roster is None:
            return
        for name, identity in identities.items():
            if name not in self.roster:
                raise PolicyRefused(f"this site's policy has no site named {name!r} on its roster")
            if identity != self.roster[name]:
                raise PolicyRefused(f"the plan pins another identity for {name!r} than this site's policy does")

    def _review_private(self, scheme: str, calibration: str, seeded: bool) -> None:
        only = "this site's data are private, and only public or synthetic data may"
        if scheme == "non-private":
            raise PolicyRefused(f"{only} go without noise: choose another scheme than 'non-private'")
        if scheme == "pooled" and not self.trusted_coordinator:
            raise PolicyRefused(
                "this site's data are private, and under the scheme 'pooled' the coordinator sees them: "
                "choose another scheme, or set trusted_coordinator in the policy"
            )
        if scheme == "cape-helper" and not self.trusted_coordinator:
            raise PolicyRefused(
                "this site's data are private, and under the scheme 'cape-helper' the coordinator deals the noise that "
                "is to hide them from it: choose another scheme, or set trusted_coordinator in the policy"
            )
        if calibration != "exact":
            raise PolicyRefused(f"{only} be released under the calibration {calibration!r}: choose 'exact'")
        if seeded:
            raise PolicyRefused(f"{only} be used with noise that a seed predicts: take the seed out of the study")


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


def ledger_folder() -> Path:
    """Where ledgers lie unless a policy says otherwise: in the user's state folder, or under $ZEROSUM_STATE."""
    state = os.environ.get("ZEROSUM_STATE")
    return (Path(state).expanduser() if state else user_state_path("zerosum")) / "ledgers"
