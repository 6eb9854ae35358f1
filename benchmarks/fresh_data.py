"""Catalogue of data sets on which no setting of the package was tuned: `python benchmarks/fresh_data.py` lists them.

    from fresh_data import CATALOGUE, load
    data = load("house-prices", seed=3)

Public sets come with scikit-learn and with statsmodels (`pip install statsmodels`; needed for these benchmarks alone).
The made-up sets cover what makes regressions hard: collinear, skewed and rare columns, residuals with heavy tails or
with a variance that depends on a column, many indicator columns, large overdispersed counts, exposures, a wrong link,
and small tables. Word counts of short and long documents are for topic models.

Do not choose a setting, a default or a threshold on these sets. Choose it on cases of your own and report these.

Ranges are what a person would declare without a look at the data: codes of the questionnaire, or round numbers. Values
outside of them are clipped, as a site does. Each set is split at random between eight sites of unequal size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Family = Literal["linear", "logistic", "poisson", "classes", "texts"]
Drawn = tuple[Floats, Floats, Floats | None]

SITES = (0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.06, 0.04)  # shares of eight unequal sites
_POPULATION = 400_000  # rows that the coefficients of a population are computed from


class Unavailable(RuntimeError):
    """The data set cannot be loaded here; the message says why."""


@dataclass(frozen=True)
class DataSet:
    """One table with its public facts.

    Attributes
    ----------
    name, kind : str
        Name, and what makes the set hard.
    family : str
        Model to fit: "linear", "logistic" (y is 0 or 1), "poisson" (y is a count), "classes" (y is 0, 1, ...) or
        "texts" (x holds word counts, y the main topic of each document).
    columns : tuple of str
        Names of the columns of x.
    x, y : array of shape (n, p), array of shape (n,)
        Features and response, clipped to the ranges.
    ranges : array of shape (p, 2)
        Public range of each feature.
    response : pair of float
        Public range of the response.
    offset : array of shape (n,) or None
        Known term of the linear predictor (the logarithm of an exposure).
    offset_range : pair of float
        Public range of the offset.
    site : array of int, shape (n,)
        Site of each row, 0 to 7.
    population : array of shape (p + 1,) or None
        Slopes and intercept of the best fit to the distribution that a made-up set was drawn from. None for public
        sets.
    """

    name: str
    kind: str
    family: Family
    columns: tuple[str, ...]
    x: Floats
    y: Floats
    ranges: Floats
    response: tuple[float, float]
    offset: Floats | None = None
    offset_range: tuple[float, float] = (0.0, 0.0)
    population: Floats | None = None
    seed: int = field(default=0, repr=False)

    @cached_property
    def site(self) -> NDArray[np.int64]:
        # The seed differs from that of the rows, so that the split does not depend on the values.
        order = np.random.default_rng(7_000_003 + self.seed).permutation(len(self.y))
        label = np.empty(len(self.y), dtype=np.int64)
        cuts = (np.cumsum(SITES[:-1]) * len(self.y)).astype(int)
        for at, rows in enumerate(np.split(order, cuts)):
            label[rows] = at
        return label

    @cached_property
    def rows(self) -> Floats:
        """Features, the offset where there is one, and the response: the table as a study reads it."""
        known = [] if self.offset is None else [self.offset]
        return np.column_stack([self.x, *known, self.y])

    @property
    def parts(self) -> list[Floats]:
        """`rows` of each site."""
        return [self.rows[self.site == at] for at in range(len(SITES))]

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Names of the columns of `rows`."""
        return (*self.columns, *(() if self.offset is None else ("offset",)), "y")

    @property
    def table_ranges(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of the columns of `rows`."""
        known = [] if self.offset is None else [self.offset_range]
        low, high = np.array([*self.ranges, *known, self.response], dtype=np.float64).T
        return low, high

    @cached_property
    def pooled(self) -> Floats:
        """Slopes and intercept (p + 1,) of the fit to all rows without privacy."""
        return maximum_likelihood(self.family, self.x, self.y, self.offset)


def maximum_likelihood(family: str, x: Floats, y: Floats, offset: Floats | None = None) -> Floats:
    """Slopes and intercept (p + 1,) by least squares or by damped Newton steps.

    Columns are standardised first. A ridge of 1e-6 of a row keeps the solution finite for separable or dependent
    columns and is far below the error of any private fit.
    """
    n, p = x.shape
    center, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    inner = np.column_stack([(x - center) / scale, np.ones(n)])
    ridge = 1e-6 * np.eye(p + 1)
    known = np.zeros(n) if offset is None else offset
    w = np.zeros(p + 1)
    if family == "linear":
        w = np.linalg.solve(inner.T @ inner + ridge, inner.T @ (y - known))
    else:
        w[-1] = np.log(y.mean() / np.exp(known).mean()) if family == "poisson" else 0.0
        for _ in range(100):
            predictor = inner @ w + known
            rate = expit(predictor) if family == "logistic" else np.exp(np.minimum(predictor, 30))
            weight = rate * (1 - rate) if family == "logistic" else rate
            step = np.linalg.solve(inner.T @ (weight[:, None] * inner) + ridge, inner.T @ (y - rate) - ridge @ w)
            # A step changes no predictor by more than 2, so that no rate overflows.
            w = w + step * min(1.0, 2 / max(float(np.max(np.abs(inner @ step))), 1e-300))
            if np.max(np.abs(step)) < 1e-10:
                break
    slopes = w[:-1] / scale
    return np.append(slopes, w[-1] - slopes @ center)


# ---- public sets -----------------------------------------------------------------------------------------------------


def _clipped(name: str, kind: str, family: Family, table: Mapping[str, tuple[Any, float, float]], y: Any,
             response: tuple[float, float], seed: int, offset: Floats | None = None,
             offset_range: tuple[float, float] = (0.0, 0.0), population: Floats | None = None) -> DataSet:  # fmt: skip
    """A data set from columns with their ranges: name to (values, low, high)."""
    ranges = np.array([each[1:] for each in table.values()], dtype=np.float64)
    x = np.column_stack([np.asarray(each[0], dtype=np.float64) for each in table.values()])
    return DataSet(
        name=name,
        kind=kind,
        family=family,
        columns=tuple(table),
        x=np.clip(x, ranges[:, 0], ranges[:, 1]),
        y=np.clip(np.asarray(y, dtype=np.float64), *response),
        ranges=ranges,
        response=response,
        offset=None if offset is None else np.clip(offset, *offset_range),
        offset_range=offset_range,
        population=population,
        seed=seed,
    )


def _diabetes(seed: int) -> DataSet:
    from sklearn.datasets import load_diabetes

    stored = load_diabetes(scaled=False)
    ends = [(18, 90), (1, 2), (15, 50), (50, 150), (80, 320), (30, 260), (15, 110), (1, 10), (3, 6.5), (50, 130)]
    table = {name: (stored.data[:, at], *ends[at]) for at, name in enumerate(stored.feature_names)}
    return _clipped(
        "diabetes", "442 people, two blood values with r = .9", "linear", table, stored.target, (0, 400), seed
    )


def _breast_cancer(seed: int) -> DataSet:
    from sklearn.datasets import load_breast_cancer

    stored = load_breast_cancer()
    mean = [
        (5, 30),
        (5, 40),
        (40, 200),
        (100, 2500),
        (0.05, 0.2),
        (0, 0.4),
        (0, 0.5),
        (0, 0.2),
        (0.1, 0.3),
        (0.04, 0.1),
    ]
    error = [(0, 3), (0, 5), (0, 25), (0, 550), (0, 0.03), (0, 0.15), (0, 0.4), (0, 0.05), (0, 0.08), (0, 0.03)]
    worst = [(5, 40), (10, 50), (50, 260), (150, 4500), (0.05, 0.25), (0, 1.1), (0, 1.3), (0, 0.3)]
    worst += [(0.1, 0.7), (0.05, 0.25)]
    ends = [*mean, *error, *worst]
    table = {str(name): (stored.data[:, at], *ends[at]) for at, name in enumerate(stored.feature_names)}
    return _clipped(
        "breast-cancer", "569 people, 30 collinear columns", "logistic", table, stored.target == 0, (0, 1), seed
    )


def _wine(seed: int) -> DataSet:
    from sklearn.datasets import load_wine

    stored = load_wine()
    ends = [(11, 15), (0.5, 6), (1, 4), (10, 30), (60, 170), (0.5, 4), (0, 6), (0, 1), (0, 4), (1, 14), (0.4, 2)]
    ends += [(1, 4), (200, 1800)]
    table = {str(name): (stored.data[:, at], *ends[at]) for at, name in enumerate(stored.feature_names)}
    return _clipped("wine", "178 rows, 13 columns, 3 classes", "classes", table, stored.target, (0, 2), seed)


def _digits(seed: int) -> DataSet:
    from sklearn.datasets import load_digits

    stored = load_digits()
    table = {str(name): (stored.data[:, at], 0, 16) for at, name in enumerate(stored.feature_names)}
    return _clipped("digits", "1797 rows, 64 columns, 10 classes", "classes", table, stored.target, (0, 9), seed)


def _linnerud(seed: int) -> DataSet:
    from sklearn.datasets import load_linnerud

    stored = load_linnerud()
    ends = [(0, 20), (0, 300), (0, 300)]
    table = {str(name): (stored.data[:, at], *ends[at]) for at, name in enumerate(stored.feature_names)}
    return _clipped(
        "linnerud", "20 people: nothing can be learnt", "linear", table, stored.target[:, 0], (100, 300), seed
    )


def _statsmodels(name: str) -> Any:
    """Data frame of a set that comes with statsmodels."""
    try:
        from statsmodels import datasets
    except ImportError:
        raise Unavailable("statsmodels is not installed: pip install statsmodels") from None
    return getattr(datasets, name).load_pandas().data


_FAIR = {"rate_marriage": (1, 5), "age": (17.5, 42), "yrs_married": (0.5, 23), "children": (0, 5.5),
         "religious": (1, 4), "educ": (9, 20), "occupation": (1, 6), "occupation_husb": (1, 6)}  # fmt: skip


def _fair(seed: int) -> DataSet:
    frame = _statsmodels("fair")
    table = {name: (frame[name], *ends) for name, ends in _FAIR.items()}
    return _clipped(
        "fair", "6366 people, coded columns, age and years married r = .9", "logistic", table, frame["affairs"] > 0,
        (0, 1), seed,
    )  # fmt: skip


def _fair_rating(seed: int) -> DataSet:
    frame = _statsmodels("fair")
    table = {name: (frame[name], *ends) for name, ends in _FAIR.items() if name != "rate_marriage"}
    return _clipped(
        "fair-rating", "6366 people, skewed integer response", "linear", table, frame["rate_marriage"], (1, 5), seed
    )


def _randhie(seed: int) -> DataSet:
    frame = _statsmodels("randhie")
    ends = {"lncoins": (0, 5), "idp": (0, 1), "lpi": (0, 8), "fmde": (0, 9), "physlm": (0, 1), "disea": (0, 60),
            "hlthg": (0, 1), "hlthf": (0, 1), "hlthp": (0, 1)}  # fmt: skip
    table = {name: (frame[name], *each) for name, each in ends.items()}
    return _clipped(
        "randhie", "20 190 rows, overdispersed visits, rare columns", "poisson", table, frame["mdvis"], (0, 100), seed
    )


_STAR = {"LOWINC": (0, 100), "PERASIAN": (0, 100), "PERBLACK": (0, 100), "PERHISP": (0, 100), "PERMINTE": (0, 100),
         "AVYRSEXP": (0, 30), "AVSALK": (40, 90), "PERSPENK": (2, 10), "PTRATIO": (10, 35), "PCTAF": (0, 100),
         "PCTCHRT": (0, 100), "PCTYRRND": (0, 100)}  # fmt: skip


def _star_share(seed: int) -> DataSet:
    frame = _statsmodels("star98")
    table = {name: (frame[name], *ends) for name, ends in _STAR.items()}
    share = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return _clipped("star98", "303 districts, 12 skewed columns", "linear", table, share, (0, 1), seed)


def _star_counts(seed: int) -> DataSet:
    frame = _statsmodels("star98")
    table = {name: (frame[name], *ends) for name, ends in _STAR.items()}
    exposure = np.log(np.asarray(frame["NABOVE"] + frame["NBELOW"], dtype=np.float64))
    return _clipped(
        "star98-counts", "303 districts, large counts with exposures", "poisson", table, frame["NABOVE"], (0, 2000),
        seed, offset=exposure, offset_range=(1.0, 9.0),
    )  # fmt: skip


_ANES = {"logpopul": (-3, 9), "TVnews": (0, 7), "selfLR": (1, 7), "ClinLR": (1, 7), "DoleLR": (1, 7), "age": (18, 95),
         "educ": (1, 7), "income": (1, 24)}  # fmt: skip


def _anes(seed: int) -> DataSet:
    frame = _statsmodels("anes96")
    table = {name: (frame[name], *ends) for name, ends in {**_ANES, "PID": (0, 6)}.items()}
    return _clipped("anes96", "944 people, strong effect of one column", "logistic", table, frame["vote"], (0, 1), seed)


def _anes_party(seed: int) -> DataSet:
    frame = _statsmodels("anes96")
    table = {name: (frame[name], *ends) for name, ends in _ANES.items()}
    return _clipped("anes96-party", "944 people, integer response", "linear", table, frame["PID"], (0, 6), seed)


def _ccard(seed: int) -> DataSet:
    frame = _statsmodels("ccard")
    ends = {"AGE": (18, 80), "INCOME": (0, 10), "INCOMESQ": (0, 100), "OWNRENT": (0, 1)}
    table = {name: (frame[name], *each) for name, each in ends.items()}
    return _clipped("ccard", "72 people, income and its square", "linear", table, frame["AVGEXP"], (0, 2000), seed)


def _travel(seed: int) -> DataSet:
    frame = _statsmodels("modechoice")
    ends = {"ttme": (0, 120), "invc": (0, 200), "invt": (0, 1500), "gc": (0, 300), "hinc": (0, 100), "psize": (1, 6)}
    table = {name: (frame[name], *each) for name, each in ends.items()}
    return _clipped("travel", "840 rows, collinear skewed costs", "logistic", table, frame["choice"], (0, 1), seed)


# ---- made-up sets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Population:
    """A distribution that tables are drawn from.

    Attributes
    ----------
    kind, family, rows
        As in `DataSet`; `rows` is the usual size of a table.
    ranges : dict
        Public range of each column.
    response, offset_range : pair of float
        Public ranges.
    draw : callable
        (generator, rows) to features, response and offset.
    """

    kind: str
    family: Family
    rows: int
    ranges: Mapping[str, tuple[float, float]]
    response: tuple[float, float]
    draw: Callable[[np.random.Generator, int], Drawn]
    offset_range: tuple[float, float] = (0.0, 0.0)

    def table(self, name: str, seed: int, rows: int | None = None, population: Floats | None = None) -> DataSet:
        x, y, offset = self.draw(np.random.default_rng([20_261, seed]), rows or self.rows)
        return _clipped(
            name, self.kind, self.family,
            {column: (x[:, at], *ends) for at, (column, ends) in enumerate(self.ranges.items())},
            y, self.response, seed, offset, self.offset_range, population,
        )  # fmt: skip


def _mixed(columns: int) -> Floats:
    """A square root of a covariance matrix of moderate correlations, the same on every call."""
    rng = np.random.default_rng(columns)
    root = np.eye(columns) + 0.3 * rng.normal(size=(columns, columns))
    return np.asarray(root / np.linalg.norm(root, axis=1, keepdims=True))


def _houses(rng: np.random.Generator, n: int) -> Drawn:
    """Two coordinates with r = -.92; skewed counts of rooms; a price with a ceiling that many rows reach."""
    south = rng.normal(size=n)
    place = np.column_stack([south, -0.92 * south + np.sqrt(1 - 0.92**2) * rng.normal(size=n)])
    income = np.exp(0.45 * rng.normal(size=n) + 1.2)
    people = np.exp(0.7 * rng.normal(size=n) + 7.0)
    rooms = people * np.exp(0.3 * rng.normal(size=n) + 0.7)
    age = rng.integers(1, 53, size=n).astype(np.float64)
    coast = (place[:, 0] + 0.8 * rng.normal(size=n) < -0.8).astype(np.float64)
    price = 0.4 * income + 0.009 * age - 0.45 * place[:, 0] - 0.43 * place[:, 1] + 0.5 * coast
    price = price + 0.25 * np.log(rooms / people) + 0.35 * (1 + 0.15 * income) * rng.standard_t(5, size=n)
    x = np.column_stack([place, income, people / 1000, rooms / 1000, age, coast])
    return x, np.minimum(price + 0.5, 5.0), None


def _nearly_equal(rng: np.random.Generator, n: int) -> Drawn:
    """Two measurements of the same quantity, r = .99, of which only the first acts."""
    x = rng.normal(size=(n, 8)) @ _mixed(8).T
    x[:, 1] = 0.99 * x[:, 0] + np.sqrt(1 - 0.99**2) * rng.normal(size=n)
    y = 1.0 * x[:, 0] + x[:, 2:6] @ np.array([0.5, -0.4, 0.3, 0.0]) + 1.2 * rng.normal(size=n)
    return x, y, None


def _hours(rng: np.random.Generator, n: int) -> Drawn:
    """log(1 + count) of hires by hour: not linear in the columns, and the spread is large at night."""
    hour = rng.integers(0, 24, size=n)
    season = rng.uniform(0, 2 * np.pi, size=n)
    warmth = 0.5 - 0.25 * np.cos(season) + 0.1 * rng.normal(size=n)
    felt = 0.9 * warmth + 0.05 + 0.02 * rng.normal(size=n)
    damp = np.clip(0.6 + 0.2 * rng.normal(size=n), 0, 1)
    wind = np.abs(0.2 + 0.12 * rng.normal(size=n))
    work = (rng.uniform(size=n) < 0.68).astype(np.float64)
    rain = (rng.uniform(size=n) < 0.09).astype(np.float64)
    night = (hour < 6).astype(np.float64)
    rate = np.exp(3.3 + 1.6 * np.sin(np.pi * (hour - 5) / 19) * (hour >= 5) - 1.5 * night + 1.3 * warmth - 0.6 * rain)
    rate = rate * np.where((work == 1) & np.isin(hour, (8, 17, 18)), 2.0, 1.0)
    count = rng.poisson(rng.gamma(np.where(night == 1, 0.8, 3.0), rate / np.where(night == 1, 0.8, 3.0)))
    x = np.column_stack([hour, night, warmth, felt, damp, wind, work, rain, np.cos(season), np.sin(season)])
    return x, np.log1p(count.astype(np.float64)), None


def _skewed(rng: np.random.Generator, n: int) -> Drawn:
    """Log-normal columns, an indicator of 1 % and one of 3 % of the people."""
    x = np.exp(rng.normal(size=(n, 6)) @ _mixed(6).T * np.array([0.4, 0.7, 1.0, 1.0, 1.2, 0.5]))
    rare = (rng.uniform(size=(n, 2)) < np.array([0.01, 0.03])).astype(np.float64)
    y = 10 + x[:, :4] @ np.array([1.0, 0.4, 0.15, 0.0]) + rare @ np.array([3.0, -1.0]) + 2 * rng.normal(size=n)
    return np.column_stack([x, rare]), y, None


def _heavy(rng: np.random.Generator, n: int) -> Drawn:
    """Residuals with a t distribution of 2.5 degrees of freedom, and columns with 4."""
    x = rng.standard_t(4, size=(n, 8)) @ _mixed(8).T
    y = x @ np.array([1.0, -0.7, 0.5, 0.4, 0.0, 0.0, -0.3, 0.2]) + rng.standard_t(2.5, size=n)
    return x, y, None


def _clinic(rng: np.random.Generator, n: int) -> Drawn:
    """A small table with two clear effects among ten columns."""
    x = rng.normal(size=(n, 10)) @ _mixed(10).T
    x[:, ::3] = x[:, ::3] > 0.5
    y = 0.9 * x[:, 1] - 0.7 * x[:, 2] + 0.5 * x[:, 0] + rng.normal(size=n)
    return x, y, None


def _clinic_outcome(rng: np.random.Generator, n: int) -> Drawn:
    x, y, _ = _clinic(rng, n)
    return x, (y - 0.3 + rng.logistic(size=n) * 0.3 > 0).astype(np.float64), None


_LEVELS = (8, 7, 6, 5, 4, 4, 2)  # categories of seven columns; the first level of each is the reference


def _indicators(rng: np.random.Generator, n: int) -> Drawn:
    """29 indicators of seven categorical columns and four numbers: many levels are rare."""
    effects, columns, predictor = np.random.default_rng(29), [], np.zeros(n)
    latent = rng.normal(size=n)
    for levels in _LEVELS:
        share = 1 / np.arange(1, levels + 1) ** 1.3
        # The categories of different columns depend on each other through one latent number.
        tilt = np.exp(np.log(share)[None, :] + 0.5 * latent[:, None] * np.linspace(-1, 1, levels)[None, :])
        code = (rng.uniform(size=(n, 1)) > np.cumsum(tilt / tilt.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
        code = np.minimum(code, levels - 1)
        columns.append(code[:, None] == np.arange(1, levels)[None, :])
        predictor += np.append(0.0, effects.normal(scale=0.7, size=levels - 1))[code]
    age = np.clip(40 + 13 * rng.normal(size=n) + 3 * latent, 17, 90)
    hours = np.clip(40 + 12 * rng.normal(size=n), 1, 99)
    years = np.clip(10 + 2.5 * rng.normal(size=n) + 0.8 * latent, 1, 16)
    gain = np.where(rng.uniform(size=n) < 0.08, np.exp(8.5 + rng.normal(size=n)), 0.0)
    predictor += 0.03 * (age - 40) + 0.03 * (hours - 40) + 0.3 * (years - 10) + 0.0002 * gain - 1.2
    x = np.column_stack([age, hours, years, np.log1p(gain), *columns]).astype(np.float64)
    return x, (rng.uniform(size=n) < expit(predictor)).astype(np.float64), None


def _rare_outcome(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.normal(size=(n, 8)) @ _mixed(8).T
    x[:, 3] = x[:, 3] > 1.6
    predictor = x @ np.array([0.8, -0.6, 0.4, 1.0, 0.0, 0.0, 0.3, -0.3]) - 4.3
    return x, (rng.uniform(size=n) < expit(predictor)).astype(np.float64), None


def _wrong_link(rng: np.random.Generator, n: int) -> Drawn:
    """A complementary log-log link, an interaction and a square that the model does not have."""
    x = rng.normal(size=(n, 6)) @ _mixed(6).T
    predictor = 0.9 * x[:, 0] - 0.6 * x[:, 1] + 0.4 * x[:, 2] + 0.3 * x[:, 0] * x[:, 3] - 0.2 * x[:, 4] ** 2 - 0.5
    return x, (rng.uniform(size=n) < -np.expm1(-np.exp(predictor))).astype(np.float64), None


def _nearly_equal_outcome(rng: np.random.Generator, n: int) -> Drawn:
    x, y, _ = _nearly_equal(rng, n)
    return x, (y + 0.6 * rng.logistic(size=n) > 0).astype(np.float64), None


def _counts(mean: float, dispersion: float, spread: float, columns: int) -> Callable[[np.random.Generator, int], Drawn]:
    """Gamma mixtures of Poisson counts whose variance is `dispersion` times the mean."""
    slopes = np.random.default_rng(5 + columns).normal(size=columns)

    def draw(rng: np.random.Generator, n: int) -> Drawn:
        x = rng.normal(size=(n, columns)) @ _mixed(columns).T
        x[:, ::3] = x[:, ::3] > 0.7
        predictor = x @ slopes
        # Divided by constants, not by moments of the draw, so that all tables have one population.
        rate = mean * np.exp(spread * (predictor / np.linalg.norm(slopes)) - spread**2 / 2)
        if dispersion > 1:
            rate = rng.gamma(rate / (dispersion - 1), dispersion - 1)
        return x, rng.poisson(rate).astype(np.float64), None

    return draw


def _exposures(rng: np.random.Generator, n: int) -> Drawn:
    """Event counts over follow-up times that differ 240-fold."""
    x = rng.normal(size=(n, 6)) @ _mixed(6).T
    offset = np.log(rng.uniform(0.05, 12.0, size=n))
    rate = np.exp(x @ np.array([0.5, -0.4, 0.3, 0.0, 0.2, 0.0]) - 1.7 + offset)
    return x, rng.poisson(rate).astype(np.float64), offset


def _deaths(rng: np.random.Generator, n: int) -> Drawn:
    """Survival as Poisson: at most one event, the offset is the logarithm of the time under observation."""
    x = rng.normal(size=(n, 6)) @ _mixed(6).T
    x[:, 5] = x[:, 5] > 1.0
    hazard = np.exp(x @ np.array([0.6, -0.4, 0.3, 0.0, 0.0, 0.7]) - 1.5)
    time, end = rng.exponential(size=n) / hazard, np.minimum(5.0, rng.uniform(0.2, 8, size=n))
    return x, (time <= end).astype(np.float64), np.log(np.maximum(np.minimum(time, end), 0.05))


def _wrong_mean(rng: np.random.Generator, n: int) -> Drawn:
    """Counts whose mean is linear in the columns, not exponential, with one skewed column."""
    x = rng.normal(size=(n, 6)) @ _mixed(6).T
    x[:, 5] = np.exp(0.6 * x[:, 5])
    rate = np.maximum(4 + 1.5 * x[:, 0] - 1.0 * x[:, 1] + 0.8 * x[:, 5], 0.2)
    return x, rng.poisson(rng.gamma(2.0, rate / 2.0)).astype(np.float64), None


def _named(columns: int, low: float = -5.0, high: float = 5.0) -> dict[str, tuple[float, float]]:
    return {f"x{at}": (low, high) for at in range(columns)}


def _thirds(columns: int) -> dict[str, tuple[float, float]]:
    """Ranges of columns of which each third one is an indicator."""
    return {f"x{at}": (0.0, 1.0) if at % 3 == 0 else (-5.0, 5.0) for at in range(columns)}


_INDICATOR_RANGES: dict[str, tuple[float, float]] = {
    "age": (17, 90), "hours": (1, 99), "years": (1, 16), "log_gain": (0, 12),
    **{f"c{column}_{level}": (0, 1) for column, levels in enumerate(_LEVELS) for level in range(1, levels)},
}  # fmt: skip

POPULATIONS: dict[str, Population] = {
    "house-prices": Population(
        "two columns with r = -.92, ceiling", "linear", 13_000,
        {"north": (-4, 4), "east": (-4, 4), "income": (0, 15), "people": (0, 10), "rooms": (0, 30), "age": (0, 60),
         "coast": (0, 1)}, (0, 5), _houses,
    ),
    "same-twice": Population("two columns with r = .99", "linear", 8_000, _named(8), (-10, 10), _nearly_equal),
    "hourly": Population(
        "variance depends on the hour, r = .99", "linear", 17_000,
        {"hour": (0, 23), "night": (0, 1), "warmth": (0, 1), "felt": (0, 1), "damp": (0, 1), "wind": (0, 1),
         "work": (0, 1), "rain": (0, 1), "cos": (-1, 1), "sin": (-1, 1)}, (0, 8), _hours,
    ),
    "skewed": Population(
        "log-normal and rare columns", "linear", 6_000,
        {**{f"x{at}": (0.0, 20.0) for at in range(6)}, "rare1": (0, 1), "rare2": (0, 1)}, (0, 40), _skewed,
    ),
    "heavy-tails": Population(
        "residuals with 2.5 degrees of freedom", "linear", 10_000, _named(8, -10, 10), (-20, 20), _heavy
    ),
    "clinic": Population("294 people, ten columns", "linear", 294, _thirds(10), (-6, 6), _clinic),
    "indicators": Population(
        "33 columns, 29 of them indicators", "logistic", 24_000, _INDICATOR_RANGES, (0, 1), _indicators
    ),
    "rare-outcome": Population(
        "outcome of 2 %", "logistic", 20_000, {**_named(8), "x3": (0, 1)}, (0, 1), _rare_outcome
    ),
    "wrong-link": Population("another link and an interaction", "logistic", 12_000, _named(6), (0, 1), _wrong_link),
    "same-twice-outcome": Population(
        "two columns with r = .99", "logistic", 10_000, _named(8), (0, 1), _nearly_equal_outcome
    ),
    "clinic-outcome": Population("294 people, ten columns", "logistic", 294, _thirds(10), (0, 1), _clinic_outcome),
    "traffic": Population(
        "mean 189, dispersion 53", "poisson", 11_500, _thirds(12), (0, 3000), _counts(189.0, 53.0, 0.8, 12)
    ),
    "visits": Population(
        "mean 2.9, dispersion 6", "poisson", 7_000, _thirds(10), (0, 60), _counts(2.9, 6.0, 0.35, 10)
    ),
    "exposures": Population(
        "exposures that differ 240-fold", "poisson", 6_000, _named(6), (0, 30), _exposures, (-3.0, 2.5)
    ),
    "deaths": Population(
        "survival with exposures", "poisson", 5_000, {**_named(6), "x5": (0, 1)}, (0, 1), _deaths, (-3.0, 2.0)
    ),
    "rare-events": Population("mean .1", "poisson", 8_000, _thirds(6), (0, 10), _counts(0.1, 1.5, 0.6, 6)),
    "wrong-mean": Population(
        "mean linear in the columns, a skewed column", "poisson", 9_000, {**_named(6), "x5": (0, 10)}, (0, 40),
        _wrong_mean,
    ),
}  # fmt: skip


@cache
def _population(name: str) -> Floats:
    """Slopes and intercept of the best fit to a population, from a large draw clipped to the ranges."""
    drawn = POPULATIONS[name].table(name, 1_000_000, _POPULATION)
    return maximum_likelihood(drawn.family, drawn.x, drawn.y, drawn.offset)


# ---- texts -----------------------------------------------------------------------------------------------------------


def draw_texts(documents: int, words: float, vocabulary: int, topics: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Word counts (documents, vocabulary), weights of topics (documents, topics) and topics (topics, vocabulary).

    Latent Dirichlet allocation: a document has Poisson(`words`) + 3 words and one or two topics that matter; words
    have Zipf frequencies, which topics tilt.
    """
    rng = np.random.default_rng([31, seed])
    common = 1 / np.arange(1, vocabulary + 1) ** 0.9
    rows = np.zeros((topics, vocabulary))
    for row in rows:
        chosen = rng.choice(vocabulary, size=max(vocabulary // 15, 8), replace=False)
        row[:] = 0.35 * common / common.sum()
        row[chosen] += 0.65 * (share := rng.gamma(0.7, size=len(chosen))) / share.sum()
    share = rng.dirichlet(np.full(topics, 0.15), size=documents)
    lengths = 3 + rng.poisson(words, size=documents)
    expected = share @ rows
    return rng.multinomial(lengths, expected).astype(np.float64), share, rows


def _texts(name: str, words: float, documents: int, vocabulary: int) -> Callable[[int], DataSet]:
    def make(seed: int) -> DataSet:
        counts, share, _rows = draw_texts(documents, words, vocabulary, 10, seed)
        table = {f"w{at}": (counts[:, at], 0, 50) for at in range(vocabulary)}
        main = np.argmax(share, axis=1)
        return _clipped(
            name, f"{documents} documents of {words:g} words, 10 topics", "texts", table, main, (0, 9), seed
        )

    return make


# ---- catalogue -------------------------------------------------------------------------------------------------------


def _made_up(name: str) -> Callable[[int], DataSet]:
    return lambda seed: POPULATIONS[name].table(name, seed, population=_population(name))


CATALOGUE: dict[str, Callable[[int], DataSet]] = {
    "diabetes": _diabetes,
    "linnerud": _linnerud,
    "fair-rating": _fair_rating,
    "star98": _star_share,
    "anes96-party": _anes_party,
    "ccard": _ccard,
    "breast-cancer": _breast_cancer,
    "fair": _fair,
    "anes96": _anes,
    "travel": _travel,
    "randhie": _randhie,
    "star98-counts": _star_counts,
    "wine": _wine,
    "digits": _digits,
    **{name: _made_up(name) for name in POPULATIONS},
    "short-texts": _texts("short-texts", 17, 6_000, 600),
    "long-texts": _texts("long-texts", 200, 3_000, 600),
}


def load(name: str, seed: int = 0) -> DataSet:
    """A data set by name.

    Parameters
    ----------
    name : str
        A name in `CATALOGUE`.
    seed : int
        Chooses the draw of a made-up set, and the split between sites.

    Raises
    ------
    Unavailable
        If the package that the set comes with is not installed.
    """
    return CATALOGUE[name](seed)


def main() -> None:
    """Print the catalogue."""
    for name in CATALOGUE:
        try:
            data = load(name)
        except Unavailable as reason:
            print(f"{name:20s} skipped: {reason}")
            continue
        n, p = data.x.shape
        small = int(np.bincount(data.site, minlength=len(SITES)).min())
        print(f"{name:20s} {data.family:9s} {n:6d} x {p:<4d} smallest site {small:4d}   {data.kind}")


if __name__ == "__main__":
    main()
