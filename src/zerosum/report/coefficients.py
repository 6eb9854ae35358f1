"""Tables of regression coefficients and of quantities derived from them, all post-processing of released numbers.

Two kinds of error are kept apart. The pooled error answers how far the estimate is from the fit on all sites' data
together. It contains the privacy noise, and in linear and Cox regression what clips, stops and weights of rows change
(`zerosum.algorithms.regression.linear_inference`, `zerosum.algorithms.cox.program`). The population error answers how
far it is from the coefficients of the population that the people are a sample of; it contains the sampling error as
well.

Model
-----
For coefficients w with covariance C (one for each kind) and a linear combination a'w, the estimate is a'w with variance
a'C a, and its interval is Wald's. Ratios (odds, rate and hazard ratios) are exp(a'w), and their intervals are the
exponentials of the ends. Predicted margins are g(a'w) at given values a of the features, with the inverse link g.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.design import SITE
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.significance import Correction, adjusted, joint_wald
from zerosum.report.caveats import interval_caveats
from zerosum.report.document import Forest, ForestRow, Table, known
from zerosum.report.mixed import MixedTable, random_intercept

Interval = tuple[float, float]
Link = Literal["identity", "logit", "log", "softmax"]

INTERCEPT = "intercept"
NOT_IDENTIFIED = "not identified at this budget"
NEARLY_COLLINEAR = "nearly collinear with other columns"
_SITE_EFFECT = f"{SITE}="  # beginning of the names of site effects
# Link of each algorithm, and the name of an exponentiated coefficient.
_MODELS: dict[str, tuple[Link, str]] = {
    "logistic-regression": ("logit", "odds ratio"),
    "multinomial-regression": ("softmax", "odds ratio"),
    "poisson-regression": ("log", "rate ratio"),
    "cox-regression": ("log", "hazard ratio"),
}
_PREDICTIONS: dict[Link, str] = {"identity": "mean", "logit": "probability", "log": "rate"}
_LEVELS = {"90": 1.6448536269514722, "95": 1.959963984540054}  # two-sided quantiles of the normal law
_KINDS = ("pooled", "population")
_IDENTIFIED = "identified"  # key of the largest covariance at which a combination is identified
# Largest number of rows of a table of predicted margins: the values of several features multiply.
_MARGINS_MOST = 200
# Why a coefficient is not identified, by the number in `unidentified_reason` of an estimate.
_REASONS = (
    "",
    "the privacy noise is too large",
    NEARLY_COLLINEAR,
    "too few events for the number of columns",
)
_PLACES_MOST = 4  # largest number of decimals of a ratio


def is_intercept(name: str) -> bool:
    """Whether a coefficient is an intercept: that of the model, or of a class in a model of several classes.

    >>> is_intercept("intercept"), is_intercept("mild: intercept"), is_intercept("mild: age")
    (True, True, False)
    """
    return name == INTERCEPT or name.endswith(f": {INTERCEPT}")


@dataclass(frozen=True)
class Coefficient:
    """One coefficient, ratio or prediction.

    The pooled errors refer to the fit on the pooled data and contain no sampling error of the population. The
    population errors refer to the population and contain sampling error as well. Standard errors of a ratio and of a
    prediction are those of the linear combination, before the link is inverted.
    """

    name: str
    estimate: float
    pooled_std: float
    pooled_90: Interval
    pooled_95: Interval
    population_std: float
    population_90: Interval
    population_95: Interval
    identified: bool
    unit: str = ""  # unit of measurement, if declared: "per year", "mmHg per year"
    reason: str = ""  # why it is not identified, where the program states it
    p_value: float | None = None  # Wald test that it is 0 in the population; None if the result has none
    p_adjusted: float | None = None  # the same, adjusted for the number of tests in the table

    @property
    def label(self) -> str:
        """The name with the unit of measurement."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def remark(self) -> str:
        """Whether it is identified, and why not."""
        return "" if self.identified else f"{NOT_IDENTIFIED}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True)
class JointTest:
    """Wald test that several combinations of coefficients are all 0 in the population."""

    name: str
    terms: tuple[str, ...]
    statistic: float
    degrees_of_freedom: int
    p_value: float
    identified: bool
    p_adjusted: float | None = None


@dataclass(frozen=True)
class CoefficientTable:
    """All coefficients in order, the intercept last; or ratios, contrasts, predictions derived from them.

    `str(table)` is a text table; `as_record()` has every number; `to_frame()` makes a data frame.

    Attributes
    ----------
    rows : tuple of Coefficient
        One for each coefficient.
    measure : str
        Name of the estimates: "coefficient", "odds ratio", and so on.
    link : {"identity", "logit", "log", "softmax"}
        Link of the model.
    ratio : str
        Name of an exponentiated coefficient; empty if the model has none.
    is_ratio : bool
        Whether the rows are ratios.
    covariances : mapping of str to array
        Covariance of the coefficients by kind; empty if the result has none.
    feature_mean, feature_std : mapping of str to float
        Released means and standard deviations of the features; empty if they were not bought.
    response_std : float, optional
        Released standard deviation of the response.
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment of the p values for the number of tests.
    caveats : tuple of str
        Why intervals may hold less often than they say (`zerosum.report.caveats`); shown below the table.
    """

    rows: tuple[Coefficient, ...]
    measure: str = "coefficient"
    link: Link = "identity"
    ratio: str = ""
    is_ratio: bool = False
    covariances: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)
    feature_mean: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    feature_std: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    response_std: float | None = field(default=None, repr=False, compare=False)
    correction: Correction = "none"
    caveats: tuple[str, ...] = ()

    @classmethod
    def of(cls, estimate: Mapping[str, Quantity], algorithm: str = "") -> CoefficientTable:
        """Table of the result of a regression. Raises `BadInput` for other results.

        Parameters
        ----------
        estimate : mapping of str to Quantity
            The result.
        algorithm : str
            Name of the algorithm, which decides whether coefficients have ratios.
        """
        if "pooled_std" not in estimate:
            raise BadInput("this result has no standard errors of coefficients")
        # The intercept is last, as on the axis of the errors. A hazard model has none.
        values = [
            value for name in ("coefficients", "intercept") if name in estimate for value in estimate[name].tolist()
        ]
        axis = estimate["pooled_std"].axes[0]
        units = axis.units or ("",) * len(axis.labels)
        reasons = estimate["unidentified_reason"].value if "unidentified_reason" in estimate else np.zeros(len(values))
        tests = estimate.get("p_value")
        tests = tests if tests is not None and tests.shape == (len(values),) else None
        rows = []
        for at, (name, unit, value) in enumerate(zip(axis.labels, units, values, strict=True)):
            spread: dict[str, Any] = {
                f"{kind}_{level}": (float(low), float(high))
                for kind in _KINDS
                for level in _LEVELS
                # `for ... in [value]` names the pair within the comprehension.
                for low, high in [estimate[f"{kind}_interval_{level}"][at]]
            }
            rows.append(
                Coefficient(
                    name,
                    value,
                    pooled_std=float(estimate["pooled_std"][at]),
                    population_std=float(estimate["population_std"][at]),
                    identified=bool(estimate["identified"][at]),
                    unit=unit,
                    reason=_REASONS[int(reasons[at])],
                    p_value=None if tests is None else known(tests[at]),
                    **spread,
                )
            )
        link, ratio = _MODELS.get(algorithm, ("identity", ""))
        names = [f"{kind}_covariance" for kind in (*_KINDS, _IDENTIFIED)]
        covariances = {name.partition("_")[0]: estimate[name].value for name in names if name in estimate}
        moments = {
            name: estimate[name].labelled() if name in estimate else {} for name in ("feature_mean", "feature_std")
        }
        response = float(estimate["response_std"]) if "response_std" in estimate else None
        further: dict[str, Any] = {"response_std": response, "caveats": tuple(interval_caveats(estimate))}
        return cls(tuple(rows), link=link, ratio=ratio, covariances=covariances, **further, **moments)

    # ---- derived tables --------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rows."""
        return tuple(row.name for row in self.rows)

    def ratios(self) -> CoefficientTable:
        """Odds, rate or hazard ratios: exponentiated coefficients with both kinds of intervals, without the intercept.

        Raises
        ------
        BadInput
            If the coefficients of the model have no ratios.

        Examples
        --------
        >>> row = Coefficient("age", 0.7, 0.1, (0.5, 0.9), (0.5, 0.9), 0.2, (0.4, 1.0), (0.3, 1.1), True)
        >>> round(CoefficientTable((row,), link="logit", ratio="odds ratio").ratios().rows[0].estimate, 2)
        2.01
        """
        if not self.ratio:
            raise BadInput("ratios are defined for logistic, Poisson and Cox regression only")
        if self.is_ratio:
            return self
        if self.measure.startswith("predicted"):
            raise BadInput(f"ratios are derived from coefficients, and this table holds {self.title.lower()}")
        rows = tuple(_mapped(row, _exp) for row in self.rows if not is_intercept(row.name))
        return replace(self, rows=rows, measure=self.ratio, is_ratio=True, covariances={})

    def contrast(self, weights: Mapping[str, float], name: str = "") -> Coefficient:
        """A linear combination of coefficients with both kinds of errors, from their covariances.

        It counts as identified by the criterion of a coefficient: its pooled variance is small against its prior one.

        Parameters
        ----------
        weights : mapping of str to float
            Weight of each coefficient; the others have weight 0. The intercept is called "intercept".
        name : str
            Name of the combination; by default its terms.

        Raises
        ------
        BadParameter
            If a name is not that of a coefficient.
        BadInput
            If the result has no covariances and the combination has several terms.
        """
        self._coefficients_only("contrasts")
        if strangers := [term for term in weights if term not in self.names]:
            raise BadParameter(f"there is no coefficient {strangers[0]!r}; coefficients: {', '.join(self.names)}")
        given = {term: float(weight) for term, weight in weights.items() if weight != 0}
        if not given or not all(map(math.isfinite, given.values())):
            raise BadParameter("a combination needs finite weights, and one that is not 0")
        vector = np.array([given.get(term, 0.0) for term in self.names])
        value = float(vector @ np.array([row.estimate for row in self.rows]))
        errors: dict[str, Any] = {}
        for kind in _KINDS:
            if kind in self.covariances:
                # The quadratic form of a covariance; rounding may leave it slightly below 0.
                std = math.sqrt(max(float(vector @ self.covariances[kind] @ vector), 0.0))
            elif len(given) == 1:
                # One coefficient needs no covariance: results of 0.2 have none.
                (term,) = given
                std = abs(given[term]) * float(getattr(self.rows[self.names.index(term)], f"{kind}_std"))
            else:
                raise BadInput("this result has no covariances of its coefficients: it is older, or has too many")
            errors[f"{kind}_std"] = std
            for level, quantile in _LEVELS.items():
                errors[f"{kind}_{level}"] = value - quantile * std, value + quantile * std
        identified = all(row.identified for row in self.rows if row.name in given)
        if len(given) > 1 and _IDENTIFIED in self.covariances:
            # The largest pooled variance at which the combination counts as identified: a share of its prior variance.
            most = float(vector @ self.covariances[_IDENTIFIED] @ vector)
            identified = errors["pooled_std"] ** 2 <= most
        return Coefficient(
            name or _combination_text(given),
            value,
            identified=identified,
            p_value=_wald(value, errors["population_std"]) if self.tested else None,
            **errors,
        )

    def contrasts(self, combinations: Mapping[str, Mapping[str, float]]) -> CoefficientTable:
        """Table of several linear combinations.

        Parameters
        ----------
        combinations : mapping of str to mapping
            Weights by the name of the combination, as for `contrast`.
        """
        rows = tuple(self.contrast(weights, name) for name, weights in combinations.items())
        return replace(self, rows=rows, covariances={}, correction="none")

    def per(self, amounts: Mapping[str, float]) -> CoefficientTable:
        """The table with coefficients for larger steps of a feature, such as 10 years.

        Parameters
        ----------
        amounts : mapping of str to float
            Step of a feature in its own units, positive.
        """
        if strangers := [term for term in amounts if term not in self.names or term == INTERCEPT]:
            raise BadParameter(f"there is no coefficient {strangers[0]!r}; coefficients: {', '.join(self.names)}")
        if wrong := [term for term, amount in amounts.items() if not (amount > 0 and math.isfinite(amount))]:
            raise BadParameter(f"the step of {wrong[0]!r} must be a positive number, got {amounts[wrong[0]]}")
        self._coefficients_only("steps")
        rows = tuple(
            replace(
                self.contrast({row.name: amounts[row.name]}, row.name),
                unit=_step_text(row.unit, amounts[row.name]),
            )
            if row.name in amounts
            else row
            for row in self.rows
        )
        factors = np.array([amounts.get(name, 1.0) for name in self.names])
        # Cov(D w) = D C D with the diagonal matrix D of the steps.
        scaled = {kind: each * np.outer(factors, factors) for kind, each in self.covariances.items()}
        # The combinations of the new table are about the new steps, so means and deviations are in these steps too.
        mean, std = (
            {name: value / amounts.get(name, 1.0) for name, value in each.items()}
            for each in (self.feature_mean, self.feature_std)
        )
        return replace(self, rows=rows, covariances=scaled, feature_mean=mean, feature_std=std, correction="none")

    def random_intercept(self) -> MixedTable:
        """The model with a random intercept by site in the place of a constant for each site.

        For linear models of a study with `site_effects` and three sites or more. Nothing is released anew: the mixed
        model follows from the estimates and their covariance.

        Raises
        ------
        BadInput
            If the model is not linear, has no constants of sites, or no covariances, or does not identify a constant.
        """
        self._coefficients_only("mixed models")
        if self.link != "identity":
            raise BadInput("a random intercept is available for linear regression only; site_effects has fixed ones")
        own = [row for row in self.rows if row.name.startswith(_SITE_EFFECT)]
        if len(own) < 2 or INTERCEPT not in self.names:
            raise BadInput("a random intercept needs site_effects = true, an intercept, and three sites or more")
        if not self.covariances:
            raise BadInput("this result has no covariances of its coefficients: it is older, or has too many")
        if unknown := [row.name for row in own if not row.identified]:
            raise BadInput(f"the constant of {unknown[0]!r} is {NOT_IDENTIFIED}")
        slopes = [name for name in self.names if name != INTERCEPT and not name.startswith(_SITE_EFFECT)]
        # Constants of the sites: the intercept is that of the first, the others differ from it by their effect.
        names = [*slopes, "first site", *(row.name.removeprefix(_SITE_EFFECT) for row in own)]
        change = np.zeros((len(names), len(self.names)))
        for at, name in enumerate(slopes):
            change[at, self.names.index(name)] = 1.0
        change[len(slopes) :, self.names.index(INTERCEPT)] = 1.0
        for at, row in enumerate(own, start=len(slopes) + 1):
            change[at, self.names.index(row.name)] = 1.0
        estimate = change @ np.array([row.estimate for row in self.rows])
        moved = {kind: change @ each @ change.T for kind, each in self.covariances.items()}
        fit = random_intercept(estimate, moved["population"], len(own) + 1)
        covariances = {kind: fit.map @ each @ fit.map.T for kind, each in moved.items()}
        covariances["population"] = fit.covariance
        rows = []
        for at, (name, value) in enumerate(zip([*slopes, INTERCEPT], (fit.map @ estimate).tolist(), strict=True)):
            stds = {kind: math.sqrt(max(float(covariances[kind][at, at]), 0.0)) for kind in _KINDS}
            ends: dict[str, Any] = {
                f"{kind}_{level}": (value - quantile * stds[kind], value + quantile * stds[kind])
                for kind in _KINDS
                for level, quantile in _LEVELS.items()
            }
            before = self.rows[self.names.index(name)]
            p = _wald(value, stds["population"]) if self.tested else None
            rows.append(
                Coefficient(
                    name,
                    value,
                    stds["pooled"],
                    population_std=stds["population"],
                    identified=before.identified,
                    unit=before.unit,
                    p_value=p,
                    **ends,
                )
            )
        moments = {name: value for name, value in self.feature_mean.items() if name in slopes}
        spreads = {name: value for name, value in self.feature_std.items() if name in slopes}
        fixed = replace(
            self,
            rows=tuple(rows),
            covariances=covariances,
            feature_mean=moments,
            feature_std=spreads,
            correction="none",
        )
        constants = zip(fit.constants.tolist(), fit.constant_std.tolist(), strict=True)
        return MixedTable(fixed, fit.between, fit.interval, dict(zip(names[len(slopes) :], constants, strict=True)))

    def standardised(self) -> CoefficientTable:
        """Coefficients per standard deviation of each feature; for a linear model also in deviations of the response.

        The released deviations count as known: their own noise is not in the intervals.

        Raises
        ------
        BadInput
            If the study did not release the standard deviations of the columns (`standardise = "dp"`).
        """
        if not self.feature_std:
            raise BadInput('the standard deviations of the columns were not released: standardise = "dp" releases them')
        self._coefficients_only("standardised coefficients")
        # A linear predictor of a logistic or Poisson model has no unit: only the feature is standardised.
        unit = 1.0 if self.link != "identity" or self.response_std is None else self.response_std
        rows = tuple(
            replace(self.contrast({name: std / unit}, name), unit="per SD")
            for name, std in self.feature_std.items()
            if name in self.names
        )
        return replace(self, rows=rows, measure="standardised coefficient", covariances={}, correction="none")

    def margins(self, at: Mapping[str, float | Sequence[float]] | None = None) -> CoefficientTable:
        """Predicted means, probabilities or rates at given values of the features, one row for each combination.

        Features that are not given are at their released means (margins at the means). Averages of predictions over
        the people of the study would need a release of their own.

        Parameters
        ----------
        at : mapping of str to float or sequence of float, optional
            Values of features.

        Raises
        ------
        BadInput
            If the model has no intercept, or a feature has neither a value nor a released mean.
        """
        self._coefficients_only("margins")
        if self.link == "softmax":
            raise BadInput("predicted margins are not available for several classes; predict_proba has probabilities")
        if INTERCEPT not in self.names:
            raise BadInput("a model without an intercept has no predicted margins")
        given = {
            name: np.atleast_1d(np.asarray(value, dtype=np.float64)).tolist() for name, value in (at or {}).items()
        }
        features = [name for name in self.names if name != INTERCEPT]
        if strangers := [name for name in given if name not in features]:
            raise BadParameter(f"there is no feature {strangers[0]!r}; features: {', '.join(features)}")
        if lacking := [name for name in features if name not in given and name not in self.feature_mean]:
            raise BadInput(
                f"give a value of {', '.join(lacking)}: the means of the columns were not released "
                '(standardise = "dp" releases them)'
            )
        if math.prod(map(len, given.values())) > _MARGINS_MOST:
            raise BadParameter(f"the values make more than {_MARGINS_MOST} combinations: give fewer")
        inverse = {"identity": float, "logit": _logistic, "log": _exp}[self.link]
        rows = []
        for values in itertools.product(*given.values()):
            chosen = dict(zip(given, values, strict=True))
            weights = dict(self.feature_mean) | chosen
            name = ", ".join(f"{feature} = {value:g}" for feature, value in chosen.items()) or "at the means"
            # The intercept has weight 1, so that a profile of zeros is a combination, too.
            line = self.contrast({feature: weights[feature] for feature in features} | {INTERCEPT: 1.0}, name)
            # The test of a linear predictor of 0 has no meaning for a prediction.
            rows.append(replace(_mapped(line, inverse), p_value=None))
        return replace(
            self, rows=tuple(rows), measure=f"predicted {_PREDICTIONS[self.link]}", covariances={}, correction="none"
        )

    def adjusted(self, correction: Correction) -> CoefficientTable:
        """The table with p values that are adjusted for the number of its rows, without the intercept.

        Ratios keep the adjusted values; steps, contrasts and standardised coefficients lose them, and are adjusted
        after they are derived.

        Parameters
        ----------
        correction : {"none", "holm", "benjamini-hochberg"}
            "holm" bounds the probability of any false rejection, "benjamini-hochberg" the expected share of false ones.
        """
        rows = [row for row in self.rows if not is_intercept(row.name) and row.p_value is not None]
        values = adjusted(np.array([row.p_value for row in rows], dtype=np.float64), correction).tolist()
        # The hypothesis that the intercept is 0 is hardly ever a question of a study.
        new = dict(zip([row.name for row in rows], values if correction != "none" else [None] * len(rows), strict=True))
        return replace(
            self,
            rows=tuple(replace(row, p_adjusted=new.get(row.name)) for row in self.rows),
            correction=correction,
        )

    def joint(self, terms: Sequence[str], name: str = "") -> JointTest:
        """Test that several coefficients, or combinations of them, are all 0 in the population (Wald).

        Parameters
        ----------
        terms : sequence of str
            Coefficients or combinations ("b - c"); or the name of a column, for all coefficients that come from it: its
            levels, its splines.
        name : str
            Name of the test; by default its terms.

        Raises
        ------
        BadParameter
            If a term is neither.
        BadInput
            If the result has no covariances and there are several terms.
        """
        self._coefficients_only("tests")
        weights = [each for term in terms for each in self._combinations_of(term)]
        if not weights:
            raise BadParameter("a joint test needs a coefficient, or several")
        matrix = np.array([[each.get(row, 0.0) for row in self.names] for each in weights])
        value = matrix @ np.array([row.estimate for row in self.rows])
        if "population" in self.covariances:
            covariance = matrix @ self.covariances["population"] @ matrix.T
        else:
            # One combination needs no covariances if it has one term; `contrast` raises otherwise.
            single = [self.contrast(each).population_std for each in weights]
            if len(single) > 1:
                raise BadInput("this result has no covariances of its coefficients: it is older, or has too many")
            covariance = np.diag(np.square(single))
        statistic, free, p = joint_wald(value, covariance)
        used = {term for each in weights for term in each}
        identified = all(row.identified for row in self.rows if row.name in used)
        return JointTest(name or ", ".join(terms), tuple(terms), statistic, free, p, identified)

    def _combinations_of(self, term: str) -> list[dict[str, float]]:
        """Weights of a combination; those of every coefficient of a column, if it has several."""
        own = [name for name in self.names if name.startswith((f"{term}=", f"{term}["))]
        if term in self.names or not own:
            return [combination(term, self.names)[1]]
        return [{name: 1.0} for name in own]

    def named(self, measure: str) -> CoefficientTable:
        """The same rows under another name of the estimates, such as "contrast"; ratios stay ratios.

        Parameters
        ----------
        measure : str
            The name, in the singular.
        """
        return replace(self, measure=measure, is_ratio=self.exponentiated)

    def _coefficients_only(self, what: str) -> None:
        """Refuse to derive a table from one that holds no coefficients."""
        if self.measure != "coefficient":
            raise BadInput(f"{what} are derived from coefficients, and this table holds {self.title.lower()}")

    # ---- output ----------------------------------------------------------------------------------------------------

    def as_record(self) -> list[dict[str, Any]]:
        """JSON-compatible form."""
        return [asdict(row) for row in self.rows]

    def to_frame(self) -> Any:
        """The table as a data frame of pandas or polars, with one row for each term and kind of interval."""
        from zerosum.report.tidy import of_coefficients

        return of_coefficients(self).to_frame()

    def lines(self) -> list[tuple[str, str, str, str, str]]:
        """Rows of text: name, estimate, 95 % interval for the pooled data, for the population, and a remark."""
        return [(row.label, *self.texts(row), row.remark) for row in self.rows]

    def texts(self, row: Coefficient) -> tuple[str, str, str]:
        """Estimate, 95 % interval for the pooled data, and that for the population, as text.

        Ratios have two decimals, as in journals, and more where an interval is too narrow for two.
        """
        if not self.exponentiated:
            ends = [f"{low:.4g} to {high:.4g}" for low, high in (row.pooled_95, row.population_95)]
            return f"{row.estimate:.4g}", ends[0], ends[1]
        width = min(high - low for low, high in (row.pooled_95, row.population_95))
        # Two significant digits of the width.
        places = min(max(1 - math.floor(math.log10(width)), 2), _PLACES_MOST) if 0 < width < math.inf else 2
        ends = [
            f"{ratio_text(low, places)} to {ratio_text(high, places)}"
            for low, high in (row.pooled_95, row.population_95)
        ]
        return ratio_text(row.estimate, places), ends[0], ends[1]

    @property
    def exponentiated(self) -> bool:
        """Whether the estimates are ratios, whose natural axis is logarithmic and whose neutral value is 1."""
        return self.is_ratio

    @property
    def title(self) -> str:
        """What the table holds, in the plural."""
        plural = self.measure.replace("probability", "probabilitie") + "s"
        return plural[0].upper() + plural[1:]

    def as_table(self) -> Table:
        """Table of text. The column of remarks is left out if there are none."""
        lines = self.lines()
        count = 5 if any(line[4] for line in lines) else 4
        plain = self.measure in ("coefficient", "standardised coefficient")
        first = ("coefficient", "estimate") if plain else ("term", self.measure)
        heading = (*first, "95 % pooled data", "95 % population", "remark")[:count]
        cells = [line[:count] for line in lines]
        if self.tested:
            # Before the remarks.
            heading = (*heading[:4], *self.test_headings, *heading[4:])
            cells = [(*line[:4], *self.test_texts(row), *line[4:]) for line, row in zip(cells, self.rows, strict=True)]
        return Table(self.title, heading, tuple(cells))

    @property
    def tested(self) -> bool:
        """Whether the rows have p values."""
        return any(row.p_value is not None for row in self.rows)

    @property
    def test_headings(self) -> tuple[str, ...]:
        """Headings of the columns of p values; empty without tests."""
        return () if not self.tested else ("p",) if self.correction == "none" else ("p", "adjusted p")

    def test_texts(self, row: Coefficient) -> tuple[str, ...]:
        """P values of a row as texts, as many as there are headings."""
        return tuple(map(p_text, (row.p_value, row.p_adjusted)))[: len(self.test_headings)]

    def tables(self) -> list[Table]:
        """Coefficients, and their ratios where the model has them, as tables of text."""
        tables = [self.as_table()]
        if self.ratio and self.measure == "coefficient" and any(not is_intercept(row.name) for row in self.rows):
            tables.append(self.ratios().as_table())
        return tables

    def forest(self) -> Forest:
        """Forest plot on one axis: logarithmic for ratios."""
        rows = []
        for row in self.rows:
            estimate, _, interval = self.texts(row)
            ends = (row.estimate, *row.pooled_95, *row.population_95)
            text = f"{estimate} ({interval})" if row.identified else "not identified"
            value, low, high, wide_low, wide_high = map(known, ends)
            rows.append(ForestRow(row.label, value, low, high, wide_low, wide_high, text))
        about = (
            "All on one axis. The thick bar is the 95 % interval for these data (privacy noise), the thin one for the "
            "population they are a sample of (privacy noise and sampling error), which is also written at the right."
        )
        if self.exponentiated:
            about += " The axis is logarithmic."
        return Forest(
            self.title, about, tuple(rows), self.measure, self.exponentiated, 1.0 if self.exponentiated else 0.0
        )

    def __str__(self) -> str:
        """The table as text, without title; ratios follow with their title."""
        first, *others = self.tables()
        return "\n\n".join([str(replace(first, title="")), *map(str, others), *self.caveats])


def combination(text: str, names: Sequence[str]) -> tuple[str, dict[str, float]]:
    """Name and weights of a linear combination that is written as text.

    Parameters
    ----------
    text : str
        "NAME: 10*age + sex - 0.5*chol"; the name may be left out.
    names : sequence of str
        Names of the coefficients, which may hold any characters.

    Raises
    ------
    BadParameter
        If the text is not a sum of known coefficients.

    Examples
    --------
    >>> combination("older men: 10*age + sex", ["age", "sex"])
    ('older men', {'age': 10.0, 'sex': 1.0})
    """
    # Longest names first, so that `age2` is not read as `age` and a rest.
    known_names = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    term = re.compile(rf"\s*([+-])?\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*\*\s*)?({known_names})\s*(?=[+-]|$)")
    name, separator, sum_ = text.partition(":")
    # A coefficient's own name may have a colon (an interaction): the text as a whole comes first.
    for own, rest in (("", text), (name.strip(), sum_)) if separator else (("", text),):
        weights: dict[str, float] = {}
        at = 0
        while at < len(rest) and (match := term.match(rest, at)) and (at == 0 or match[1]):
            weight = float(match[2] or 1) * (-1 if match[1] == "-" else 1)
            weights[match[3]] = weights.get(match[3], 0.0) + weight
            at = match.end()
        if weights and at == len(rest):
            return own, weights
    raise BadParameter(
        f"{text!r} is not a combination such as 'older men: 10*age + sex' of the coefficients {', '.join(names)}"
    )


def ratio_text(value: float, places: int = 2) -> str:
    """A ratio with a number of decimals; three digits where that would hide it or is too long.

    >>> ratio_text(1.2345), ratio_text(0.01234), ratio_text(1234.5), ratio_text(float("inf")), ratio_text(0.9992, 4)
    ('1.23', '0.0123', '1.23e+03', '-', '0.9992')
    """
    if not math.isfinite(value):
        return "-"
    return f"{value:.{places}f}" if 0.1 <= value < 100 or value == 0 else f"{value:.3g}"


def p_text(p: float | None) -> str:
    """A p value with three decimals, or a bound; a dash if unknown.

    >>> p_text(0.0321), p_text(1e-7), p_text(None)
    ('0.032', '< 0.001', '-')
    """
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _wald(value: float, error: float) -> float:
    """P value of the two-sided Wald test with the standard normal distribution."""
    size = abs(value) / error if error > 0 else math.inf if value else 0.0
    return math.erfc(size / math.sqrt(2))


def _exp(value: float) -> float:
    """The exponential; infinity where it overflows."""
    return math.exp(value) if value < 700 else math.inf


def _logistic(value: float) -> float:
    """The inverse of the logit, without overflow."""
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def _mapped(row: Coefficient, function: Any) -> Coefficient:
    """A row with an increasing function applied to the estimate and to the ends of its intervals.

    Intervals of a monotone function of a parameter are the function of the ends; its standard error stays that of the
    linear combination.

    Parameters
    ----------
    row : Coefficient
        A linear combination of coefficients.
    function : callable
        Increasing: the exponential, or the inverse of the link.
    """
    ends: dict[str, Any] = {
        f"{kind}_{level}": tuple(map(function, getattr(row, f"{kind}_{level}"))) for kind in _KINDS for level in _LEVELS
    }
    return replace(row, estimate=function(row.estimate), **ends)


def _step_text(unit: str, amount: float) -> str:
    """Unit of a coefficient for a larger step: "per 10", "mmHg per 10 year"."""
    before, per, after = unit.rpartition("per ")
    return f"{before if per else ''}per {amount:g}{f' {after}' if per else ''}"


def _combination_text(weights: Mapping[str, float]) -> str:
    """A linear combination as text: "10*age + sex"."""
    text = ""
    for name, weight in weights.items():
        factor = "" if abs(weight) == 1 else f"{abs(weight):g}*"
        sign = ("-" if weight < 0 else "") if not text else (" - " if weight < 0 else " + ")
        text += f"{sign}{factor}{name}"
    return text
