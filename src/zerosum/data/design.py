"""Design matrix of a regression: dummy coding, interactions, site effects, offsets, weights, missing values.

A categorical column becomes one 0/1 column for each public level except the first, which is the reference. An
interaction is the product of its parts. A site effect is 1 at its site; the first site of the roster is the reference.

Each design row depends on its own unit and on public values only, so the design has no privacy cost. Held-out units are
drawn by a hash of the unit's own rows, so that the draw is the same in every round and after a restart. No sensitivity
bound depends on the draw: it enters statistics like any other column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.formula import Formula, Function, expanded, function_terms
from zerosum.data.imputation import MOST_COPIES, Imputation, ImputationModel
from zerosum.data.spool import IN_MEMORY, Spool, Storage
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.missing import COMPLETE, IMPUTE, MEANINGS, OWN_ROWS, VALUE, unknown_rule

Level = str | float | bool
Range = tuple[float, float]

# Largest number of terms. The second moments of more terms exceed 4 million numbers, which no budget can support.
MOST_TERMS = 2000
# Rows that are expanded at a time: fixed, since a library's functions may round a number by its place among others.
_EXPANDED_ROWS = 1 << 16
SITE = "site"  # name of the column with the stratum where each site is one
DRAW = "draw"  # name of the column with the draw for held-out units
COMPLETE_ROWS = "complete"  # name of the column with the weight of rows if rows with missing values have weight 0


class Design(BaseModel):
    """Columns of a regression and how they enter.

    Parameters
    ----------
    response : str
        The dependent column.
    ranges : dict of str to (float, float)
        Public range of every numeric feature, and of a numeric response.
    levels : dict of str to list
        Public levels of every categorical feature, the reference first. A response with levels is a class.
    interactions : list of lists of str
        Features whose product enters too.
    formula : str, optional
        Selects the columns that enter, functions of them and products, as "age + sex + age:sex" or "age*sex" (both
        columns and their product), "log(dose)", "bs(age, df=4)" (`zerosum.data.formula`), with or without "response ~"
        before it. By default all columns with a range or levels enter.
    offset : str, optional
        Numeric column that is added to the linear predictor with coefficient 1.
    exposure : str, optional
        Numeric column whose logarithm is the offset: the time or number that a count refers to. Its range begins above
        0.
    weight : str, optional
        Numeric column with the weight of each row, relative to the end of its range, which begins at 0.
    hold_out : float
        Share of units that a site leaves out of the fit for evaluation, 0 to 0.5.
    time : str, optional
        For Cox regression the numeric column with the time of the event or of the end of observation; its range begins
        at 0. The response is then the event, and its levels are no event first, then one event or several.
    entry : str, optional
        Numeric column with the time at which a unit came under observation (left truncation).
    strata : str, optional
        "site": each site has a baseline hazard of its own, as by default with a time; "none": one for all; or a
        categorical column.
    measured_in : dict of str to str
        Unit of measurement of numeric columns, for the table of coefficients.
    site_effects : bool
        Whether every site except the first has its own constant.
    ordinary : dict of str to (float, float)
        Typical value and typical deviation of numeric features, if publicly known; this saves budget. Other features
        use the middle and half width of their ranges.
    missing : dict of str to number, level, "own-rows", "complete-cases" or "impute"
        Value to take by column. "own-rows", for numbers, is the mean of the same unit's other rows, or the middle of
        the range if it has none. With "complete-cases", also of the response, a row in which the value is missing has
        weight 0; the share of complete rows is released with the column moments. With "impute" values are drawn from
        a public model given the unit's other values (`zerosum.data.imputation`). Missing values of other columns are
        refused.
    imputations : int
        Copies of a unit in which a value is imputed, each with a draw of its own; their mean counts. In Cox regression
        there is one, since the rows of a unit are one path in time.
    indicators : list of str
        Features with such a rule for which a 0/1 column for missing values enters too.

    Examples
    --------
    >>> design = Design(response="sick", ranges={"age": (0, 100)}, levels={"sex": ["f", "m"], "sick": [0, 1]},
    ...                 interactions=[["age", "sex"]])
    >>> design.columns
    ('age', 'sex=m', 'age:sex=m', 'sick')
    >>> design.upper.tolist()
    [100.0, 1.0, 100.0, 1.0]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: str
    formula: str | None = None
    ranges: dict[str, Range] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    interactions: tuple[tuple[str, ...], ...] = ()
    site_effects: bool = False
    ordinary: dict[str, tuple[float, float]] = Field(default_factory=dict)
    missing: dict[str, Level] = Field(default_factory=dict)
    imputations: int = Field(default=10, ge=1, le=MOST_COPIES)
    indicators: tuple[str, ...] = ()
    offset: str | None = None
    exposure: str | None = None
    weight: str | None = None
    hold_out: float = Field(default=0.0, ge=0, le=0.5)
    time: str | None = None
    entry: str | None = None
    strata: str | None = None
    measured_in: dict[str, str] = Field(default_factory=dict)
    sites: tuple[str, ...] = ()  # names of all sites, for site effects and strata

    @model_validator(mode="before")
    @classmethod
    def _response_by_formula(cls, given: Any) -> Any:
        """Take the response from the formula, if it names one."""
        if isinstance(given, dict) and isinstance(given.get("formula"), str):
            # Brackets and powers are expanded here, so that sites need no parser of R's formulas.
            given = given | {"formula": expanded(given["formula"])}
            named = Formula.parse(given["formula"]).response
            given = given if named is None else {"response": named, **given}
            if named is not None and given["response"] != named:
                raise ValueError(f"response is {given['response']!r}, and the formula has {named!r}: give one of them")
        return given

    @model_validator(mode="after")
    def _formula_fits(self) -> Self:
        """Check the formula against ranges and levels."""
        if self.formula is None:
            return self
        if self.interactions:
            raise ValueError("formula and interactions are both given: write the interactions into the formula")
        if strangers := [name for name in self.sources if name not in (*self.ranges, *self.levels)]:
            raise ValueError(f"the formula has {strangers[0]!r}, which has neither a range nor levels")
        if taken := [name for name in self.sources if name in (self.response, *self._roles)]:
            raise ValueError(f"the formula has {taken[0]!r}, which is no feature")
        for function in self._functions.values():
            for name in function.columns:
                if name not in self.ranges:
                    raise ValueError(f"{function.text!r} is a function of {name!r}, which has levels and no range")
            # Raises for a range outside the domain of the function.
            function.terms(self.ranges)
        return self

    @model_validator(mode="after")
    def _roles_fit(self) -> Self:
        """Check offset, exposure, weight, held-out units, indicators and units of measurement."""
        if self.offset is not None and self.exposure is not None:
            raise ValueError(
                f"offset {self.offset!r} and exposure {self.exposure!r} are both given: an exposure enters as the "
                "offset log(exposure); leave one out"
            )
        roles = self._roles
        if self.time is None and (self.entry is not None or self.strata is not None):
            raise ValueError("entry and strata belong to a time: name its column as time")
        if self.time is not None and (
            self.offset or self.exposure or self.weight or self.hold_out or self.ordinary or self.site_effects
        ):
            raise ValueError(
                "with a time (Cox regression) there is no offset, exposure, weight, hold_out, ordinary value or site "
                "effect; strata give each site a baseline of its own"
            )
        if len(set(roles)) < len(roles) or self.response in roles:
            raise ValueError(
                "offset, exposure, weight and response must be different columns, got "
                f"{', '.join(map(repr, [*roles, self.response]))}"
            )
        for name in roles:
            if name == self._stratum:
                if name not in self.levels:
                    raise ValueError(f"strata must be 'site', 'none' or a column with levels, got {name!r}")
            elif name not in self.ranges:
                raise ValueError(f"{name!r} needs a public range, as an offset, an exposure, a weight or a time")
        for each in (self.time, self.entry):
            if each is not None and self.ranges[each][0] != 0:
                raise ValueError(f"the range of the time {each!r} must begin at 0, got {self.ranges[each][0]:g}")
        if self.exposure is not None and not self.ranges[self.exposure][0] > 0:
            raise ValueError(
                f"the range of the exposure {self.exposure!r} must begin above 0, got {self.ranges[self.exposure][0]:g}"
            )
        if self.weight is not None and self.ranges[self.weight][0] != 0:
            raise ValueError(
                f"the range of the weight {self.weight!r} must begin at 0, got {self.ranges[self.weight][0]:g}"
            )
        if self._drops and self.weight is None and COMPLETE_ROWS in self.read:
            raise ValueError(f"where rows with missing values are left out, no column can be called {COMPLETE_ROWS!r}")
        if self.hold_out and DRAW in self.read:
            raise ValueError(f"where units are held out, no column can be called {DRAW!r}")
        for name in self.indicators:
            if self.missing.get(name) == COMPLETE:
                raise ValueError(f"rows in which {name!r} is missing are left out: an indicator would always be 0")
            if name not in self.missing or name not in self.sources:
                raise ValueError(f"whether {name!r} is missing can enter only for a feature with a rule for that")
        if strangers := [name for name in self.measured_in if name not in self.ranges]:
            raise ValueError(f"measured_in names {strangers[0]!r}, which has no range")
        return self

    @model_validator(mode="after")
    def _sound(self) -> Self:
        """Check ranges, levels, typical values, imputed values and interactions."""
        if both := sorted(self.ranges.keys() & self.levels.keys()):
            raise ValueError(f"{both[0]!r} has a range and levels: a column is numeric or categorical")
        if self.response not in self.ranges and self.response not in self.levels:
            raise ValueError(f"the response {self.response!r} needs a public range, or two levels")
        if self.time is not None and self.response not in self.levels:
            raise ValueError(f"the event {self.response!r} needs levels: no event first, then one event or several")
        if len(self.levels.get(self.response, (0, 1))) < 2:
            raise ValueError(f"the response {self.response!r} must have two levels or more, got one")
        for name, (low, high) in self.ranges.items():
            if not low < high:
                raise ValueError(
                    f"the range of {name!r} must be two numbers, the lower one first, got {low:g} and {high:g}"
                )
        for name, levels in self.levels.items():
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise ValueError(f"the levels of {name!r} must be at least two, all different, got {list(levels)}")
        for name, (_value, deviation) in self.ordinary.items():
            if name not in self.ranges or name == self.response or not deviation > 0:
                raise ValueError(
                    f"ordinary must be for numeric features, with a positive deviation, got {name!r} with {deviation:g}"
                )
        if self.time is not None and (named := [each for each in self._roles if each in self.missing]):
            raise ValueError(f"missing must not name {named[0]!r}: times and strata are not imputed")
        if self.missing.get(self.response, COMPLETE) != COMPLETE:
            raise ValueError(
                f"missing may be {COMPLETE!r} for the response {self.response!r}, got "
                f"{self.missing[self.response]!r}: outcomes are not imputed"
            )
        if self.time is not None and self._drops:
            raise ValueError(
                f"missing may not be {COMPLETE!r} in a design with a time: rows of a Cox regression have no weights"
            )
        if len({frozenset(parts) for parts in self.interactions}) < len(self.interactions):
            raise ValueError(
                f"interactions must be different, got {', '.join(':'.join(parts) for parts in self.interactions)}"
            )
        for name, value in self.missing.items():
            if name in self.imputed and name not in self.sources:
                raise ValueError(f"missing may be {IMPUTE!r} for features, and {name!r} is none")
            if (value == COMPLETE and name in self.read) or name in self.imputed:
                continue
            if name in self.levels and value not in self.levels[name]:
                raise ValueError(f"missing must have one of the levels of {name!r} for it, got {value!r}")
            own = isinstance(value, str | bool) and value != OWN_ROWS
            if name not in self.levels and (name not in self.ranges or own):
                # A column without a range is not one of numbers, or is not read.
                lacking = "" if name in self.ranges else f"; {name!r} needs a range"
                raise ValueError(unknown_rule(value, self.rule_words, name) + lacking)
        for parts in self.interactions:
            if len(parts) < 2 or len(set(parts)) < len(parts) or not set(parts) <= set(self.features):
                raise ValueError(f"an interaction must name two or more different features, got {':'.join(parts)!r}")
        return self

    @model_validator(mode="after")
    def _not_too_many_terms(self) -> Self:
        """Limit the number of terms. They are counted before they are listed, because a short plan could name
        millions."""
        count = sum(self._count(name) for name in self.features)
        count += sum(math.prod(self._count(name) for name in parts) for parts in self.products)
        if count > MOST_TERMS:
            raise ValueError(f"the design has {count} terms, and may have {MOST_TERMS} at most")
        return self

    def _count(self, name: str) -> int:
        """Number of terms of one column."""
        return len(self._own_terms(name))

    @cached_property
    def _formula(self) -> Formula:
        """The parsed formula. Without one, a formula of the response alone, which is not used."""
        return Formula.parse(self.formula or self.response)

    @property
    def _roles(self) -> tuple[str, ...]:
        """Columns that are read and are not features: offset, exposure, weight, entry, stratum, time."""
        named = (self.offset, self.exposure, self.weight, self.entry, self._stratum, self.time)
        return tuple(name for name in named if name is not None)

    @property
    def _stratum(self) -> str | None:
        """The categorical column of the strata, or None."""
        return None if self.strata in (None, "site", "none") else self.strata

    @property
    def _by_site(self) -> bool:
        """Whether each site has a baseline hazard of its own."""
        return self.time is not None and self.strata in (None, "site") and len(self.sites) > 1

    @property
    def features(self) -> tuple[str, ...]:
        """Features: columns as named in the table, or functions of columns."""
        if self.formula is not None:
            return self._formula.features
        return tuple(name for name in (*self.ranges, *self.levels) if name not in (self.response, *self._roles))

    @cached_property
    def _functions(self) -> dict[str, Function]:
        """The features of the formula that are functions of columns."""
        if self.formula is None:
            return {}
        return {text: Function.parse(text) for text in self._formula.features if "(" in text}

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns from which the features are made, as named in the table."""
        each = [self._functions[name].columns if name in self._functions else (name,) for name in self.features]
        return tuple(dict.fromkeys(itertools.chain.from_iterable(each)))

    @property
    def products(self) -> tuple[tuple[str, ...], ...]:
        """Tuples of features whose product enters."""
        return self.interactions if self.formula is None else self._formula.interactions

    @property
    def read(self) -> tuple[str, ...]:
        """Columns to read from the table, the response last."""
        return (*self.sources, *self._roles, self.response)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the design matrix, the response last."""
        return tuple(name for name, _low, _high in self._entering())

    @property
    def lower(self) -> Floats:
        """Lower bounds of the design columns."""
        return np.array([low for _name, low, _high in self._entering()])

    @property
    def upper(self) -> Floats:
        """Upper bounds of the design columns."""
        return np.array([high for _name, _low, high in self._entering()])

    @property
    def roles(self) -> dict[str, Any]:
        """Parameters of a regression for columns that are not features, and units of measurement."""
        roles: dict[str, Any] = {}
        if self.offset is not None or self.exposure is not None:
            roles["offset"] = self._offset[0]
        if self._weight is not None:
            roles["weight"] = self._weight[0]
        if self.hold_out:
            roles |= {"draw": DRAW, "hold_out": self.hold_out}
        if self.time is None and len(self.levels.get(self.response, ())) > 2:
            roles |= {"classes": self.levels[self.response]}
        if self.time is not None:
            roles |= {"events": self.levels[self.response]}
            roles |= {} if self.entry is None else {"entry": self.entry}
            if self._by_site:
                roles |= {"stratum": SITE, "strata": self.sites}
            elif self._stratum is not None:
                roles |= {"stratum": self._stratum, "strata": self.levels[self._stratum]}
        return roles | ({"measured_in": self._measures()} if self.measured_in else {})

    @property
    def _drops(self) -> frozenset[str]:
        """Columns in which a missing value gives its row the weight 0."""
        return frozenset(name for name, value in self.missing.items() if value == COMPLETE)

    @property
    def _weight(self) -> tuple[str, float, float] | None:
        """Name and range of the column of weights, or None."""
        if self.weight is not None:
            return self.weight, *self.ranges[self.weight]
        return (COMPLETE_ROWS, 0.0, 1.0) if self._drops else None

    @property
    def imputed(self) -> tuple[str, ...]:
        """Columns whose missing values are drawn from a public model."""
        # A level of this name is a value to take.
        drawn = {name for name, value in self.missing.items() if value == IMPUTE and IMPUTE not in self._known(name)}
        return (*(name for name in self.read if name in drawn), *sorted(drawn.difference(self.read)))

    def _known(self, name: str) -> tuple[Level, ...]:
        """The levels of a column; none for a number."""
        return self.levels.get(name, ())

    def imputation(self, model: ImputationModel | None) -> Imputation | None:
        """How missing values are drawn, or None if no column has this rule.

        Parameters
        ----------
        model : ImputationModel or None
            The public model.

        Raises
        ------
        BadParameter
            If there is no model, or if it does not fit the columns.
        """
        if not self.imputed:
            if model is not None:
                raise BadParameter(f"there is a model for imputation, and no column has the rule {IMPUTE!r}")
            return None
        if model is None:
            raise BadParameter(f"column {self.imputed[0]!r} has the rule {IMPUTE!r}: name a public model, `imputation`")
        levels = {name: known for name, known in self.levels.items() if name in self.read}
        # A draw without the outcome would weaken the relation of the column with it.
        given = tuple(name for name in (self.response, self.time) if name is not None)
        copies = 1 if self.time is not None else self.imputations
        return Imputation(model, self.read, levels, self.imputed, given, copies)

    @property
    def rule_words(self) -> tuple[str, ...]:
        """The rules for missing values that a design has, for messages."""
        return VALUE, MEANINGS[OWN_ROWS], MEANINGS[COMPLETE], MEANINGS[IMPUTE]

    @property
    def _offset(self) -> tuple[str, float, float]:
        """Name and range of the offset column."""
        if self.exposure is None:
            return (self.offset or "", *self.ranges.get(self.offset or "", (0.0, 0.0)))
        # The logarithm is monotone: the range of the offset is that of the logarithms of the ends.
        low, high = self.ranges[self.exposure]
        return f"log {self.exposure}", math.log(low), math.log(high)

    def _entering(self) -> list[tuple[str, float, float]]:
        """Name and range of every design column: features, offset, weight, draw, entry, stratum, time, response."""
        offset = [self._offset] if self.offset is not None or self.exposure is not None else []
        weight = [] if self._weight is None else [self._weight]
        drawn = [(DRAW, 0.0, 1.0)] if self.hold_out else []
        times = [(name, *self.ranges[name]) for name in (self.entry, self.time) if name is not None]
        strata = [(SITE if self._by_site else str(self._stratum), 0.0, 1.0)] if self._by_site or self._stratum else []
        times = [*times[:-1], *strata, *times[-1:]]
        return [*self._terms(), *offset, *weight, *drawn, *times, (self.response, *self._response_range)]

    @property
    def _response_range(self) -> Range:
        """Range of the response: as declared, or the codes of its classes. An event enters as 0 or 1 whatever it is."""
        if self.time is None and self.response in self.levels:
            return 0.0, float(len(self.levels[self.response]) - 1)
        return self._own_range(self.response)

    def _measures(self) -> dict[str, str]:
        """Unit of measurement of design columns. That of a product is the product of its parts' units."""
        measures = {name: unit for name, unit in self.measured_in.items() if name in (*self.features, self.response)}
        for parts in self.products:
            units = [self.measured_in[name] for name in parts if name in self.measured_in]
            if units:
                for terms in itertools.product(*(self._own_terms(name) for name in parts)):
                    measures[":".join(term[0] for term in terms)] = " ".join(units)
        return measures

    @property
    def center(self) -> Floats:
        """Typical value of each term, shape (n_terms,)."""
        return np.array([self._ordinary(*term)[0] for term in self._terms()])

    @property
    def scale(self) -> Floats:
        """Typical deviation of each term, shape (n_terms,)."""
        return np.array([self._ordinary(*term)[1] for term in self._terms()])

    def _ordinary(self, name: str, low: float, high: float) -> tuple[float, float]:
        """Typical value and deviation of a term; by default the middle and half width of its range."""
        return self.ordinary.get(name, ((low + high) / 2, (high - low) / 2))

    @property
    def reference(self) -> dict[str, str]:
        """Reference level of every categorical feature, and the reference site."""
        others = (self.response, self._stratum)
        known = {name: str(levels[0]) for name, levels in self.levels.items() if name not in others}
        return known | ({"site": self.sites[0]} if self.site_effects and self.sites else {})

    def _own_range(self, name: str) -> Range:
        """Range of a column; (0, 1) for a categorical one."""
        return self.ranges.get(name, (0.0, 1.0))

    def _own_terms(self, name: str) -> list[tuple[str, float, float]]:
        """Terms of one feature, as (name, low, high)."""
        if name in self._functions:
            own = tuple((column, self.ranges[column]) for column in self._functions[name].columns)
            return list(function_terms(name, own))
        if name in self.ranges:
            return [(name, *self.ranges[name])]
        return [(f"{name}={level}", 0.0, 1.0) for level in self.levels[name][1:]]

    def _terms(self) -> list[tuple[str, float, float]]:
        """All terms as (name, low, high): features, indicators, products, site effects."""
        own = [term for name in self.features for term in self._own_terms(name)]
        own += [(f"{name} missing", 0.0, 1.0) for name in self.indicators]
        for parts in self.products:
            for terms in itertools.product(*(self._own_terms(name) for name in parts)):
                low, high = 1.0, 1.0
                for _name, a, b in terms:
                    # The extreme values of a product of intervals are products of their ends.
                    corners = [low * a, low * b, high * a, high * b]
                    low, high = min(corners), max(corners)
                own.append((":".join(term[0] for term in terms), low, high))
        effects = [(f"site={site}", 0.0, 1.0) for site in self.sites[1:]] if self.site_effects else []
        return [*own, *effects]

    def expand(
        self,
        units: Units,
        site: str,
        *,
        strict: bool = True,
        storage: Storage = IN_MEMORY,
        imputation: Imputation | None = None,
    ) -> Units:
        """Design rows from rows of `read`.

        A row is unfit if a value is missing without a rule, or is none of its column's levels. For the owner of the
        data (`strict`) this is an error. At a serving site the coordinator chose rules and levels, and an error would
        reveal data. There the row becomes NaN, and its unit counts as a unit of zeros.

        Rows are expanded in blocks of whole units, whose length does not depend on where the result is stored, so that
        the result has the same bits in memory and in a file.

        Parameters
        ----------
        units : Units
            Rows of shape (n, len(read)), categories as indices.
        site : str
            Name of the site, for site effects.
        strict : bool
            Whether unfit rows are errors.
        storage : Storage
            Where the design rows are stored, together with `units.rows` where these are in memory.
        imputation : Imputation, optional
            How missing values are drawn; without it no value may be missing in a column with that rule. Units with
            missing values have copies then.
        """
        if units.columns != len(self.read):
            raise BadData(f"the data do not have the {len(self.read)} columns of the design")
        drawn = units.own_draws(twins="apart") if self.hold_out or imputation is not None else None
        design, done, ends = Spool(len(self.columns), storage.beside(units.rows)), 0, [np.zeros(1, dtype=np.int64)]
        for block in units.within(_EXPANDED_ROWS):
            draws = None if drawn is None else drawn[done : done + len(block)]
            copied, rows = block, np.asarray(block.rows, dtype=np.float64)
            if imputation is not None and draws is not None:
                copied, rows = imputation.completed(block, draws)
                own = np.arange(len(copied) + 1) if copied.offsets is None else copied.offsets
                ends.append(ends[-1][-1] + own[1:])
            design.append_columns(self._expanded(copied, rows, site, draws if self.hold_out else None, strict=strict))
            done += len(block)
        if imputation is None or (units.offsets is None and imputation.copies == 1):
            return replace(units, rows=design.rows())
        return Units(design.rows(), np.concatenate(ends))

    def _expanded(self, units: Units, rows: Floats, site: str, drawn: Floats | None, *, strict: bool) -> list[Floats]:
        """The design columns of some units, see `expand`.

        Parameters
        ----------
        units : Units
            Some units, with NaN where a value is missing.
        rows : array of shape (rows, len(read))
            Their rows, with the values that were drawn from a model.
        site : str
            Name of the site.
        drawn : array of shape (units,) or None
            The draw of each unit, where units are held out.
        strict : bool
            Whether unfit rows are errors.
        """
        # From the units, which have NaN where a value was drawn.
        given = np.asarray(units.rows, dtype=np.float64)
        gone = {name: np.isnan(given[:, self.read.index(name)]) for name in (*self.indicators, *self._drops)}
        # Rows with a missing value that is not imputed have weight 0.
        whole = np.ones(len(rows))
        for name in self._drops:
            whole *= ~gone[name]
        # Each column is imputed from its own unit only, so that a row stays a function of one person.
        rows = np.column_stack([self._filled(name, rows[:, at], units) for at, name in enumerate(self.read)])
        unfit = np.zeros(len(rows), dtype=bool)
        for at, name in enumerate(self.read):
            known = len(self.levels[name]) if name in self.levels else None
            sound = np.isfinite(rows[:, at]) if known is None else np.isin(rows[:, at], np.arange(known))
            if strict and not np.all(sound):
                raise BadData(f"some values of {name!r} are missing without a rule, or none of its levels")
            unfit |= ~sound
        read = {name: rows[:, at] for at, name in enumerate(self.sources)}
        # Clipped before functions and products are formed, so that their ranges hold.
        read |= {name: np.clip(values, *self.ranges[name]) for name, values in read.items() if name in self.ranges}
        own = {
            name: self._functions[name].evaluate(read, self.ranges)
            if name in self._functions
            else self._own_columns(name, read[name])
            for name in self.features
        }
        parts = [column for name in self.features for column in own[name]]
        parts += [gone[name].astype(np.float64) for name in self.indicators]
        for names in self.products:
            for columns in itertools.product(*(own[name] for name in names)):
                parts.append(np.prod(columns, axis=0))
        if self.site_effects:
            parts += [np.full(len(rows), float(site == other)) for other in self.sites[1:]]
        for at, name in enumerate(self._roles, len(self.sources)):
            if name == self._stratum:
                parts.append(rows[:, at])
                continue
            if name == self.time and self._by_site:
                parts.append(np.full(len(rows), float(self.sites.index(site)) if site in self.sites else np.nan))
            if name in (self.time, self.entry):
                # Not clipped: a row that is observed beyond the horizon is censored there by the statistic.
                parts.append(rows[:, at])
                continue
            # Clipping to the public range also keeps the logarithm of an exposure finite.
            values = np.clip(rows[:, at], *self.ranges[name])
            values = values * whole if name == self.weight else values
            parts.append(np.log(values) if name == self.exposure else values)
        if self._drops and self.weight is None:
            parts.append(whole)
        if drawn is not None:
            parts.append(drawn if units.offsets is None else np.repeat(drawn, np.diff(units.offsets)))
        # Otherwise an undeclared level would enter as the reference level: all its dummy columns are 0.
        return [np.where(unfit, np.nan, part) for part in (*parts, rows[:, -1])]

    def _filled(self, name: str, values: Floats, units: Units) -> Floats:
        """One column with missing values imputed by its rule.

        Parameters
        ----------
        name : str
            The column.
        values : array of shape (rows,)
            Its values; categories as indices, NaN where missing.
        units : Units
            Owners of the rows, for "own-rows".
        """
        if name not in self.missing or name in self.imputed:
            return values
        value = self.missing[name]
        if value == COMPLETE:
            # Any public value would do, since the row has weight 0: the middle of the range, or the reference level.
            middle = sum(self.ranges[name]) / 2 if name in self.ranges else 0.0
            return np.where(np.isnan(values), middle, values)
        if value == OWN_ROWS and name in self.ranges:
            return self._own_mean(name, values, units)
        taken = self.levels[name].index(value) if name in self.levels else value
        # Only NaN is a missing value. An undeclared level is not imputed.
        return np.where(np.isnan(values), float(taken), values)

    def _own_mean(self, name: str, values: Floats, units: Units) -> Floats:
        """Impute the mean of the same unit's observed values, or the middle of the range.

        Parameters
        ----------
        name : str
            A numeric column.
        values : array of shape (rows,)
            Its values.
        units : Units
            Owners of the rows.
        """
        low, high = self.ranges[name]
        if units.offsets is None:
            return np.where(np.isnan(values), (low + high) / 2, values)
        there = ~np.isnan(values)
        # Clipped before the mean: one extreme value must not move the imputed value out of the public range.
        known = np.clip(np.where(there, values, low), low, high)
        # Both are means over the unit's rows; their ratio is the mean over observed rows.
        total, count = (units.average(each) for each in (np.where(there, known, 0.0), there.astype(np.float64)))
        mean = np.where(count > 0, total / np.where(count > 0, count, 1.0), (low + high) / 2)
        return np.where(there, values, np.repeat(mean, np.diff(units.offsets)))

    def _own_columns(self, name: str, values: Floats) -> list[Floats]:
        """Design columns of one column of the table: clipped numbers, or dummy columns.

        Parameters
        ----------
        name : str
            A feature.
        values : array of shape (rows,)
            Its values after imputation, clipped to the range; categories as indices.

        Returns
        -------
        list of array of shape (rows,)
            One column for a number; one 0/1 column for each level but the reference.
        """
        if name in self.ranges:
            return [values]
        return [(values == index).astype(np.float64) for index in range(1, len(self.levels[name]))]

    def for_sites(self, sites: Sequence[str]) -> Self:
        """This design with the names of all sites."""
        return self.model_copy(update={"sites": tuple(sites)})
