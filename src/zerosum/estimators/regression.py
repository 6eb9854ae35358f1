"""Private linear regression over sites, and the base classes of all regressions."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.data.imputation import ImputationModel
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import ColumnRanges, Tables, bad_data
from zerosum.estimators.documentation import documented
from zerosum.estimators.formula import design_data, feature_table, make_design
from zerosum.estimators.supervised import Supervised
from zerosum.estimators.validation import BOOLEAN, MAPPING, RANGE, Constraint, optional
from zerosum.kernel.missing import (
    COMPLETE,
    MEANINGS,
    OBSERVED,
    OWN_ROWS,
    Missing,
    is_number,
    rules_by_column,
    unknown_rule,
)
from zerosum.kernel.quantity import Quantity
from zerosum.report.coefficients import CoefficientTable

# Results of the evaluation of a regression (`zerosum.algorithms`), by their keys in the estimate.
_EVALUATION = frozenset({"clipped_share", "auc", "deviance", "scores", "residuals"})
_HELD_OUT = "held_out_"  # prefix of these keys if units are held out


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class JointRegression(Supervised, ColumnRanges):
    """Base class of regressions: public ranges, weights, and coefficients in the units of the data.

    A subclass gives the public range of the coded response (`_response_range`, `_coded`).

    Parameters
    ----------
    %(regression)s
    """

    _program_names: ClassVar[Mapping[str, str]] = {"fit_intercept": "intercept"}
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **ColumnRanges._not_parameters,
        "weight": "given to `fit` as `weights`",
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **ColumnRanges._constraints,
        "fit_intercept": BOOLEAN,
        "measured_in": optional(MAPPING),
    }

    response: ArrayLike | None = None
    center: ArrayLike | None = None
    scale: ArrayLike | None = None
    fit_intercept: bool = True
    standardise: Literal["auto", "dp", "none"] = "auto"
    standardise_share: float = 0.05
    clip: float | None = None
    missing: Missing = None
    measured_in: Mapping[str, str] | None = None

    # ---- the data --------------------------------------------------------------------------------------------------

    def _whole_rows(self, tables: Tables, vectors: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        # Rows with a missing value in a column of complete cases have weight 0.
        rules = rules_by_column(self.missing, self._feature_names)
        places = [at for at, name in enumerate(self._feature_names) if rules.get(name) == COMPLETE]
        if not places:
            return {}
        given = vectors.get("weights", {})
        weights = {}
        for site, units in tables.items():
            whole = ~np.isnan(np.asarray(units.rows)[:, places]).any(axis=1)
            weights[site] = np.asarray(given[site], dtype=np.float64) * whole if given else whole.astype(np.float64)
        return {"weights": weights}

    def _with_role(self, what: str, units: Units, values: Any) -> Units:
        # A weight above 1 would be clipped by the statistic, without a message.
        joined = super()._with_role(what, units, values)
        weights = np.asarray(joined.rows)[:, -1]
        if what == "weights" and np.any((weights < 0) | (weights > 1)):
            raise BadData("weights must lie in 0 to 1")
        return joined

    @abstractmethod
    def _response_range(self, tables: Tables) -> tuple[float, float]:
        """Public range of the coded response."""

    def _numeric_range(self, tables: Tables) -> tuple[float, float]:
        """Range of a numeric response: as given, or in a seeded run the extremes of the data."""
        return self._given_or_extremes("response", -1, tables)

    def _given_or_extremes(self, what: str, at: int, tables: Tables) -> tuple[float, float]:
        """The public range in the parameter `what`, or in a seeded run the extremes of the column `at`."""
        given = getattr(self, what)
        if given is not None:
            low, high = np.asarray(given, dtype=np.float64).tolist()
            return low, high
        column = what.removesuffix("_range")
        if self.random_state is None:
            raise BadParameter(f"give the public range of the {column}: {what}=(lowest, highest)")
        self._note(f"no {what} was given, so the extremes of the data were taken, which is not private")
        values = np.concatenate([np.asarray(units.rows)[:, at] for units in tables.values()])
        low, high = float(np.min(values)), float(np.max(values))
        # A response that is constant has a range of width 1.
        return low, high if high > low else low + 1.0

    def _range_of_role(self, role: str, tables: Tables) -> tuple[float, float]:
        """Public range of a column between the features and the response."""
        return 0.0, 1.0

    # ---- the program -----------------------------------------------------------------------------------------------

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._bounds_or_extremes(tables)
        # In the order of the columns: roles after the features, the response last.
        ends = [*(self._range_of_role(role, tables) for role in self._roles), self._response_range(tables)]
        return super()._parameters(tables) | {
            "lower": np.append(lower, [low for low, _high in ends]),
            "upper": np.append(upper, [high for _low, high in ends]),
            "weight": "weights" if "weights" in self._roles else None,
            "center": self._by_column("center"),
            "scale": self._by_column("scale"),
            "intercept": bool(self.fit_intercept),
            "measured_in": dict(self.measured_in or {}),
            **self._missing_parameter,
        }

    @property
    def _rule_words(self) -> tuple[str, ...]:
        # A column of numbers is not "observed" alone, because a row's values are needed together.
        return *super()._rule_words, MEANINGS[COMPLETE]

    @property
    def _missing_parameter(self) -> dict[str, Any]:
        """The program's rules. A row of weight 0 may have any public value: the one of "own-rows" is taken."""
        if self.missing is None:
            return {}
        # Before the program, whose message would not list "complete-cases".
        for rule in self.missing.values() if isinstance(self.missing, Mapping) else [self.missing]:
            if not (is_number(rule) or rule in (OWN_ROWS, OBSERVED, COMPLETE)):
                raise BadParameter(unknown_rule(rule, self._rule_words))
        if isinstance(self.missing, Mapping):
            return {"missing": {name: OWN_ROWS if rule == COMPLETE else rule for name, rule in self.missing.items()}}
        rule = OWN_ROWS if self.missing == COMPLETE else self.missing
        # Not for the weights, which have no rule.
        return {"missing": dict.fromkeys(self._feature_names, rule) if self.missing == COMPLETE else rule}

    def _learn(self, estimate: Estimate) -> None:
        self.coef_: Floats = estimate["coefficients"].value.copy()
        self.intercept_ = float(estimate["intercept"][0])

    def _predictor(self, X: Any, offset: Any = None) -> Floats:
        """Linear predictor of rows of one site."""
        return self._shifted(self._own_rows(X) @ self.coef_ + self.intercept_, offset)

    @staticmethod
    def _shifted(predictor: Any, offset: Any) -> Floats:
        """The linear predictor plus an offset, if there is one."""
        if offset is None:
            return np.asarray(predictor)
        with bad_data():
            column = np.asarray(column_or_1d(offset), dtype=np.float64)
        if column.shape != np.shape(predictor) or not np.all(np.isfinite(column)):
            raise BadData("offset must have a finite number for each row")
        return np.asarray(predictor + column)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ModelRegression(JointRegression):
    """Base class of regressions with a likelihood: offsets, standard errors, and a private evaluation.

    Parameters
    ----------
    %(offset_range)s
    %(regression_evaluation)s
    """

    _not_parameters: ClassVar[Mapping[str, str]] = {
        **JointRegression._not_parameters,
        "offset": "given to `fit` as `offset`",
        "draw": "made by `fit` from the rows of each unit, if `hold_out` is set",
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **JointRegression._constraints,
        "offset_range": optional(RANGE),
    }

    offset_range: ArrayLike | None = None
    evaluate_share: float = 0.0
    hold_out: float = 0.0
    rounds: int | None = None
    room: float | None = None

    def fit(
        self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, offset: Any = None, weights: Any = None
    ) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        y : list or dict of vectors, or one vector
            Response of every row, by site as X.
        %(fit_sites)s
        offset : as y, optional
            Known term of the linear predictor of every row (for counts, the logarithm of the exposure), in the public
            `offset_range`.
        weights : as y, optional
            Weight of every row, from 0 to 1. Weights are private, as all columns of a unit.

        %(fit_returns)s
        """
        return self._fit_to(X, y, sites, {"offset": offset, "weights": weights})

    def _take_columns(self, columns: int, *, first: bool) -> None:
        super()._take_columns(columns, first=first)
        if first and len(self._terms) == columns:
            # Units have no names of columns.
            self.feature_names_in_ = np.array(self._terms, dtype=object)

    def _with(self, units: Units, values: Any) -> Units:
        joined = super()._with(units, values)
        if not self.hold_out:
            return joined
        # As in a study file with a design: equal units get different draws, and all rows of a unit the same one.
        draws = joined.own_draws(twins="apart")
        by_row = draws if joined.offsets is None else np.repeat(draws, np.diff(joined.offsets))
        rows = np.asarray(joined.rows)
        return replace(joined, rows=np.column_stack([rows[:, :-1], by_row, rows[:, -1]]))

    @classmethod
    def from_formula(
        cls,
        formula: str,
        frames: Any,
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        levels: Mapping[str, Sequence[Any]] | None = None,
        missing: Mapping[str, Any] | None = None,
        indicators: Sequence[str] = (),
        offset: str | None = None,
        exposure: str | None = None,
        weight: str | None = None,
        site_effects: bool = False,
        imputation: ImputationModel | None = None,
        imputations: int = 10,
        **settings: Any,
    ) -> Self:
        """Fit the regression of a formula to a data frame for each site, and charge their ledgers.

        Parameters
        ----------
        formula : str
            As "sick ~ age*sex + bs(dose, df=4)": columns, functions of columns (`zerosum.data.formula`) and products.
        frames : dict of str to frame, or list of frames
            A frame (pandas, polars, Arrow) for each site, with the columns of the formula; others are not read.
        ranges : dict of str to (float, float), optional
            Public range of each numeric column, and of a numeric response.
        levels : dict of str to sequence, optional
            Public levels of each column of categories, the reference first; a response with two levels is a class.
        missing : dict of str to number, level, "own-rows", "complete-cases" or "impute", optional
            Rules for missing values by column.
        indicators : sequence of str, optional
            Columns with a rule for which a 0/1 column for missing values enters too.
        offset, exposure, weight : str, optional
            Columns with a known term of the linear predictor, the time or number that a count refers to, and the weight
            of each row.
        site_effects : bool, default=False
            Whether every site but the first has its own constant.
        imputation : ImputationModel, optional
            The public model from which values with the rule "impute" are drawn: `SyntheticData.imputation_model`.
        imputations : int, default=10
            Draws for each unit with such a value; their mean counts.
        **settings
            Parameters of the estimator, such as `epsilon` and `unit`.

        Returns
        -------
        estimator
            Fitted. `design_` is the design, and `design_table` makes rows for `predict`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from zerosum import LinearRegression
        >>> rng = np.random.default_rng(0)
        >>> dose = [rng.uniform(1, 9, 3000) for _ in range(3)]
        >>> frames = [pa.table({"dose": each, "size": 2 * np.log(each)}) for each in dose]
        >>> fitted = LinearRegression.from_formula(
        ...     "size ~ log(dose)",
        ...     frames,
        ...     ranges={"dose": (1, 9), "size": (0, 5)},
        ...     epsilon=3,
        ...     random_state=0,
        ...     data="synthetic",
        ... )
        >>> fitted.coef_.round(1).tolist()
        [2.0]
        """
        if not isinstance(frames, Mapping | list | tuple):
            raise BadData("give a frame for each site: a dict from names of sites to frames, or a list")
        if not isinstance(frames, Mapping) and settings.get("data", "private") == "private":
            raise BadParameter(
                "these sites have no names, and the ledgers of private data have the names of the sites: give frames "
                "as a dict from names of sites to frames"
            )
        sites = dict(frames) if isinstance(frames, Mapping) else {f"site {s}": each for s, each in enumerate(frames)}
        sites = {str(name): each for name, each in sites.items()}
        declared: dict[str, Any] = {
            **{"ranges": ranges or {}, "levels": levels or {}, "missing": missing or {}, "indicators": indicators},
            **{"offset": offset, "exposure": exposure, "weight": weight, "site_effects": site_effects},
            "imputations": imputations,
        }
        design = make_design(formula, list(sites), declared)
        made = design_data(design, sites, imputation)
        features = len(made.terms)
        # The design has the features first, then offset, weight and response, each with its public range.
        own = {"lower": design.lower[:features], "upper": design.upper[:features], **cls._response_of(design)}
        if made.offset is not None:
            own["offset_range"] = (float(design.lower[features]), float(design.upper[features]))
        labels = cls._labels_of(design, made.y)
        fitted = cls(**own, **settings)
        fitted._terms = made.terms
        fitted.fit(made.X, labels, offset=made.offset, weights=made.weights)
        fitted.design_ = design
        return fitted

    @classmethod
    def _response_of(cls, design: Design) -> dict[str, Any]:
        """Parameters of the constructor for the response of a design."""
        if design.response not in design.ranges:
            raise BadParameter(f"the response {design.response!r} needs a public range: name it in ranges")
        return {"response": design.ranges[design.response]}

    @classmethod
    def _labels_of(cls, design: Design, coded: dict[str, Floats]) -> dict[str, Any]:
        """The responses as `fit` takes them."""
        return coded

    def design_table(self, frame: Any, site: str = "") -> Any:
        """Rows of a frame in the terms of the formula, for `predict`; only after `from_formula`.

        Parameters
        ----------
        frame : frame
            Data of one site with the columns of the formula. The response may be left out.
        site : str
            Name of the site, for site effects.

        Returns
        -------
        pyarrow.Table
            One column for each coefficient.
        """
        if not hasattr(self, "design_"):
            raise BadParameter("this estimator was not made by from_formula: give rows to predict")
        return feature_table(self.design_, frame, site)

    @property
    def _columns(self) -> tuple[str, ...]:
        *others, response = super()._columns
        return (*others, *(["draw"] if self.hold_out else []), response)

    def _range_of_role(self, role: str, tables: Tables) -> tuple[float, float]:
        if role == "offset":
            return self._given_or_extremes("offset_range", self.n_features_in_, tables)
        return super()._range_of_role(role, tables)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        parameters = super()._parameters(tables)
        parameters["offset"] = "offset" if "offset" in self._roles else None
        if self.hold_out:
            for name, end in (("lower", 0.0), ("upper", 1.0)):
                # Before the response, where `_with` has put the column of draws.
                parameters[name] = np.insert(parameters[name], -1, end)
            parameters["draw"] = "draw"
        return parameters

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.table_ = CoefficientTable.of(estimate, self._algorithm)
        # Standard errors have the intercept last.
        privacy, population = estimate["pooled_std"].value, estimate["population_std"].value
        self.noise_std_: Floats = privacy[:-1].copy()
        self.intercept_noise_std_ = float(privacy[-1])
        self.population_std_: Floats = population[:-1].copy()
        self.p_value_: Floats = estimate["p_value"].value[:-1].copy()
        if "wald_p_value" in estimate:
            self.wald_p_value_ = float(estimate["wald_p_value"][0])
        unidentified = sum(not row.identified for row in self.table_.rows)
        if unidentified:
            self._note(f"{unidentified} of {len(self.table_.rows)} coefficients are not identified at this budget")
        if self.evaluate_share:
            self.evaluation_: dict[str, Quantity] = {
                name: quantity
                for name, quantity in estimate.items()
                if name in _EVALUATION or name.startswith(_HELD_OUT)
            }


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(RegressorMixin, ModelRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private least squares over sites, with standard errors and intervals.

    Parameters
    ----------
    %(ranges)s
    %(response_range)s
    %(offset_range)s
    %(regression)s
    goal : {"inference", "predict"}, default="inference"
        "inference" spends part of the rounds on scores of whole rows, so that intervals contain the bias of the others;
        "predict" spends all on clipped rows, which predict better where noise is large.
    method : {"auto", "moment", "gradient"}, default="auto"
        Release of a round: joint second moments ("moment"), or the gradient. "gradient" releases no second moments, so
        its coefficients have no useful standard errors.
    rounds : int, optional
        Number of rounds; by default the planner's choice.
    residual_clip : float, optional
        Bound on a residual, in standard deviations of the residuals; by default the planner's choice.
    room : float, optional
        Squared norm at which rows are clipped, over the mean squared norm; by default the planner's choice.
    learning_rate : float, optional
        Length of a step of the method "gradient"; by default the planner's choice.
    burn_in : int, optional
        Number of first rounds that are left out of the final average; by default a third.
    closing_rounds : int, optional
        Number of last rounds, which release scores; by default the planner's choice.
    score_clip : float, optional
        Clip of scores in these rounds, over the norm of a typical one; by default chosen from a released histogram.
    %(regression_evaluation)s
    %(privacy)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients in the units of the data.
    %(coefficients)s
    residual_std_ : float
        Standard deviation of the residuals.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (2000, 2)) for _ in range(3)]
    >>> y = [rows @ [1.0, -2.0] + rng.normal(0, 0.1, 2000) for rows in X]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> fitted = LinearRegression(lower=-1, upper=1, response=(-4, 4), epsilon=3, **seeded).fit(X, y)
    >>> fitted.coef_.round(1).tolist()
    [1.0, -2.0]
    """

    _algorithm: ClassVar[str] = "linear-regression"
    _constraints: ClassVar[Mapping[str, Constraint]] = {**ModelRegression._constraints, "response": optional(RANGE)}

    goal: Literal["inference", "predict"] = "inference"
    method: Literal["auto", "moment", "gradient"] = "auto"
    residual_clip: float | None = None
    learning_rate: float | None = None
    burn_in: int | None = None
    closing_rounds: int | None = None
    score_clip: float | None = None

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return self._numeric_range(tables)

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.residual_std_ = float(estimate["residual_std"][0])

    def predict(self, X: Any, offset: Any = None) -> Floats:
        """Expected response of rows.

        Parameters
        ----------
        %(rows_and_offset_to)s
        ndarray of shape (rows,)
            Expected responses.
        """
        return self._predictor(X, offset)
