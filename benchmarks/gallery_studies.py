"""One small study of made-up data for each algorithm: what the gallery of reports shows, and what its tests draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum import algorithms, run, statistic
from zerosum.compute.units import Units
from zerosum.data.masker import Masker
from zerosum.data.synthetic import COLUMNS, MEASURES, RANGES, hospitals
from zerosum.report.record import Result
from zerosum.site.policy import Policy

Floats = NDArray[np.float64]
Drawn = tuple[Result, Masker | None]

SITES = ("Northgate", "St. Anne", "Lakeside", "University")
LOWER, UPPER = np.array([RANGES[column] for column in COLUMNS]).T


def _run(
    name: str,
    algorithm: Any,
    sites: Mapping[str, Any],
    epsilon: float = 1.0,
    statistics: tuple[str, ...] | None = None,
    **terms: Any,
) -> Result:
    with TemporaryDirectory() as folder:
        policies = {
            site: Policy.throwaway(site, Path(folder) / f"{at}.sqlite", statistics=statistics)
            for at, site in enumerate(sites)
        }
        return run(algorithm, sites, epsilon=epsilon, delta=1e-5, unit="person", policies=policies, name=name, **terms)


def _split(rows: Any) -> dict[str, Any]:
    """So many people for each hospital, as unequal as hospitals are."""
    ends = (np.cumsum([0.06, 0.14, 0.3]) * len(rows)).astype(int)
    return dict(zip(SITES, np.split(rows, ends), strict=True))


def _ranged(**more: Any) -> dict[str, Any]:
    return {"columns": COLUMNS, "lower": LOWER, "upper": UPPER, **more}


def mean() -> Drawn:
    return _run(
        "Five measurements in four hospitals",
        algorithms.MeanProgram(**_ranged()),
        hospitals(seed=7),
        measured_in=MEASURES,
    ), None


def histogram() -> Drawn:
    ages = {name: rows[:, :1] for name, rows in hospitals(seed=7).items()}
    edges = np.arange(20.0, 101.0, 10.0)
    return _run(
        "How old are our patients?",
        algorithms.HistogramProgram(columns=("age",), edges=edges),
        ages,
        measured_in={"age": "years"},
    ), None


def covariance() -> Drawn:
    data = hospitals(seed=7, sizes=(200, 400, 900, 1500))
    return _run(
        "Which measurements go together?", algorithms.CovarianceProgram(**_ranged()), data, measured_in=MEASURES
    ), None


def correlation() -> Drawn:
    rows = hospitals(seed=7, sizes=(300, 500, 900, 1500))
    names = ("age", "systolic", "bmi", "glucose")
    data = {name: each[:, :4] for name, each in rows.items()}
    chosen = algorithms.CorrelationProgram(
        columns=names,
        method="spearman",
        lower=np.array([RANGES[name][0] for name in names], dtype=float),
        upper=np.array([RANGES[name][1] for name in names], dtype=float),
        correction="holm",
    )
    return _run("Which measurements go together?", chosen, data, 2.0), None


def describe() -> Drawn:
    rng = np.random.default_rng(5)
    rows = np.vstack(list(hospitals(seed=7, sizes=(300, 500, 900, 1500)).values()))
    table = np.column_stack([rows[:, :3], rng.integers(0, 2, len(rows)), rng.integers(0, 3, len(rows))])
    chosen = algorithms.DescribeProgram(
        columns=("age", "systolic", "bmi", "sex", "smoking"),
        ranges={name: RANGES[name] for name in ("age", "systolic", "bmi")},
        levels={"sex": (0.0, 1.0), "smoking": (0.0, 1.0, 2.0)},
        by="sex",
    )
    measured = {name: MEASURES[name] for name in ("age", "systolic", "bmi")}
    return _run("Patients by sex", chosen, _split(rng.permutation(table)), 2.0, measured_in=measured), None


def quantiles() -> Drawn:
    data = {name: rows[:, [0, 3]] for name, rows in hospitals(seed=7, sizes=(300, 500, 900, 1500)).items()}
    chosen = algorithms.QuantilesProgram(
        columns=("age", "glucose"), ranges={"age": RANGES["age"], "glucose": RANGES["glucose"]}
    )
    return _run("Age and glucose", chosen, data, measured_in={"age": "years", "glucose": "mg/dL"}), None


def survival() -> Drawn:
    rng = np.random.default_rng(3)
    treated = rng.integers(0, 2, 4000)
    death, leaves = rng.exponential(40 + 30 * treated), rng.uniform(10, 80, 4000)
    rows = np.column_stack([np.minimum(death, leaves), death <= leaves, treated]).astype(float)
    chosen = algorithms.SurvivalProgram(
        columns=("months", "died", "treatment"), edges=np.arange(0.0, 61.0, 6.0), groups=(0.0, 1.0)
    )
    return _run("Survival after treatment", chosen, _split(rows), 2.0), None


def cox() -> Drawn:
    rng = np.random.default_rng(4)
    age, treated = rng.normal(62, 11, 6000).clip(18, 100), rng.integers(0, 2, 6000)
    hazard = 0.02 * np.exp(0.04 * (age - 62) - 0.5 * treated)
    death, leaves = rng.exponential(1 / hazard), rng.uniform(10, 80, 6000)
    rows = np.column_stack([age, treated, np.minimum(death, leaves), death <= leaves]).astype(float)
    chosen = algorithms.CoxRegressionProgram(
        columns=("age", "treatment", "months", "died"),
        lower=np.array([18.0, 0.0, 0.0, 0.0]),
        upper=np.array([100.0, 1.0, 60.0, 1.0]),
        measured_in={"age": "year", "months": "months"},
    )
    return _run("What shortens survival?", chosen, _split(rows), 2.0), None


def hypothesis_test() -> Drawn:
    rng = np.random.default_rng(6)
    treated = rng.integers(0, 2, 3000)
    change = np.column_stack(
        [rng.normal(-4 - 2 * treated, 12), rng.normal(-0.3 * treated, 2.5), rng.normal(0, 30, len(treated)), treated]
    )
    chosen = algorithms.HypothesisTestProgram(
        columns=("systolic change", "bmi change", "glucose change", "treatment"),
        test="welch",
        ranges={"systolic change": (-50, 50), "bmi change": (-10, 10), "glucose change": (-100, 100)},
        levels={"treatment": (0.0, 1.0)},
        by="treatment",
        correction="holm",
    )
    measured = {"systolic change": "mmHg", "bmi change": "kg/m²", "glucose change": "mg/dL"}
    return _run("Changes by treatment", chosen, _split(change), 2.0, measured_in=measured), None


def linear() -> Drawn:
    rng = np.random.default_rng(2)
    x = np.vstack(list(hospitals(seed=7, sizes=(600, 900, 2000, 3500)).values()))[:, [0, 2, 3]]
    y = 70 + 0.5 * x[:, 0] + 0.9 * x[:, 1] + 0.02 * x[:, 2] + rng.normal(0, 10, len(x))
    chosen = algorithms.LinearRegressionProgram(
        columns=("age", "bmi", "glucose", "systolic"),
        lower=np.array([18.0, 12.0, 40.0, 80.0]),
        upper=np.array([100.0, 60.0, 400.0, 220.0]),
        evaluate_share=0.1,
        measured_in={"age": "year", "bmi": "kg/m²", "glucose": "mg/dL", "systolic": "mmHg"},
    )
    return _run(
        "What explains blood pressure?", chosen, _split(rng.permutation(np.column_stack([x, np.clip(y, 80, 220)]))), 2.0
    ), None


def logistic() -> Drawn:
    rng = np.random.default_rng(4)
    x = np.vstack(list(hospitals(seed=7, sizes=(600, 900, 2000, 3500)).values()))[:, [0, 2, 3]]
    risk = 1 / (1 + np.exp(-(-9 + 0.06 * x[:, 0] + 0.12 * x[:, 1] + 0.015 * x[:, 2])))
    rows = np.column_stack([x, rng.random(len(x)) < risk])
    chosen = algorithms.LogisticRegressionProgram(
        columns=("age", "bmi", "glucose", "diabetes"),
        lower=np.array([18.0, 12.0, 40.0, 0.0]),
        upper=np.array([100.0, 60.0, 400.0, 1.0]),
        evaluate_share=0.15,
    )
    return _run("Who has diabetes?", chosen, _split(rng.permutation(rows)), 3.0), None


def multinomial() -> Drawn:
    rng = np.random.default_rng(5)
    x = np.vstack(list(hospitals(seed=7, sizes=(600, 900, 2000, 3500)).values()))[:, [0, 2]]
    odds = np.column_stack([np.zeros(len(x)), -6 + 0.09 * x[:, 0], -9 + 0.05 * x[:, 0] + 0.22 * x[:, 1]])
    rows = np.column_stack([x, np.argmax(odds + rng.gumbel(size=odds.shape), axis=1)])
    chosen = algorithms.MultinomialRegressionProgram(
        columns=("age", "bmi", "ward"),
        lower=np.array([18.0, 12.0, 0.0]),
        upper=np.array([100.0, 60.0, 2.0]),
        classes=("surgery", "cardiology", "endocrinology"),
    )
    return _run("Which ward do patients come to?", chosen, _split(rng.permutation(rows)), 3.0), None


def poisson() -> Drawn:
    rng = np.random.default_rng(6)
    x = np.vstack(list(hospitals(seed=7, sizes=(600, 900, 2000, 3500)).values()))[:, [0, 2]]
    visits = np.minimum(rng.poisson(np.exp(-0.9 + 0.02 * x[:, 0] + 0.02 * x[:, 1])), 20)
    chosen = algorithms.PoissonRegressionProgram(
        columns=("age", "bmi", "visits"), lower=np.array([18.0, 12.0, 0.0]), upper=np.array([100.0, 60.0, 20.0])
    )
    return _run(
        "How often do patients come?", chosen, _split(rng.permutation(np.column_stack([x, visits]).astype(float))), 3.0
    ), None


def polynomial() -> Drawn:
    rng = np.random.default_rng(8)
    x = np.vstack(list(hospitals(seed=7, sizes=(600, 900, 2000, 3500)).values()))[:, [0, 2]]
    y = np.clip(90 + 0.5 * x[:, 0] + 0.4 * x[:, 1] + rng.normal(0, 8, len(x)), 80, 220)
    chosen = algorithms.PolynomialLossProgram(
        columns=("age", "bmi", "systolic"),
        lower=np.array([18.0, 12.0, 80.0]),
        upper=np.array([100.0, 60.0, 220.0]),
        table=np.array([[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]]),
    )
    return _run(
        "Blood pressure, by a loss of one's own", chosen, _split(rng.permutation(np.column_stack([x, y]))), 2.0
    ), None


@statistic("pulse_pressure", length=2)
def pulse_pressure(rows: Floats) -> tuple[float, float]:
    """A person's mean pulse pressure and mean arterial pressure."""
    systolic, diastolic = rows.mean(axis=0)
    return systolic - diastolic, (systolic + 2 * diastolic) / 3


def own_statistic() -> Drawn:
    rng = np.random.default_rng(9)
    rows = np.column_stack([rng.normal(132, 15, 3000), rng.normal(82, 9, 3000)])
    chosen = algorithms.CustomProgram(columns=("systolic", "diastolic"), statistic="pulse_pressure", clip=200.0)
    return _run(
        "Pulse pressure, by a statistic of one's own", chosen, _split(rows), statistics=("pulse_pressure",)
    ), None


def pca() -> Drawn:
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    rows = rng.normal(size=(5000, 12)) * (3.0 * 0.62 ** np.arange(12)) @ axes.T
    names = tuple(f"test {at + 1}" for at in range(12))
    chosen = algorithms.PCAProgram(columns=names, n_components=4, clip=10.0)
    return _run("Twelve tests of memory", chosen, _split(rows), 2.0), None


def ica() -> Drawn:
    from zerosum.data.bases import cosines

    space, truth = _brain()
    rng = np.random.default_rng(8)
    people = []
    for _ in range(480):
        waves = rng.laplace(size=(60, len(truth)))
        people.append(waves @ truth + 0.3 * rng.normal(size=(60, truth.shape[1])))
    chosen = algorithms.ICAProgram(columns=space.columns, n_components=len(truth), basis=cosines(space, 4))
    sites = {name: Units.from_list(people[at * 120 : (at + 1) * 120]) for at, name in enumerate(SITES)}
    return _run("Networks of the resting brain", chosen, sites, 4.0), space


def _brain() -> tuple[Masker, Floats]:
    """A made-up head with four places that are busy together."""
    shape = (17, 20, 15)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"), axis=-1)
    head = ((place / (0.85, 0.92, 0.85)) ** 2).sum(axis=-1) < 1
    affine = np.diag([9.0, 9.0, 9.0, 1.0])
    affine[:3, 3] = -77, -100, -60
    space = Masker.from_array(head.astype(np.uint8), affine, "mask")
    centres = ((0.0, -0.6, 0.1), (0.45, 0.2, 0.3), (-0.45, 0.2, 0.3), (0.0, 0.55, -0.1))
    maps = [np.exp(-((place - centre) ** 2).sum(axis=-1) / 0.06)[head] for centre in centres]
    return space, np.stack(maps)


def k_means() -> Drawn:
    return _run(
        "Three kinds of metabolism",
        algorithms.KMeansProgram(columns=("bmi", "glucose"), **_two(), n_clusters=3),
        _clouds(),
        2.0,
    ), None


def mixture() -> Drawn:
    chosen = algorithms.MixtureProgram(columns=("bmi", "glucose"), **_two(), n_components=3, scaling="ranges")
    return _run("A mixture of metabolisms", chosen, _clouds(), 3.0), None


def _two() -> dict[str, Floats]:
    return {"lower": np.array([12.0, 40.0]), "upper": np.array([60.0, 400.0])}


def _clouds() -> dict[str, Any]:
    rng = np.random.default_rng(9)
    centres = np.array([[24.0, 95.0], [38.0, 120.0], [33.0, 260.0]])
    rows = centres[rng.choice(3, 6000, p=[0.5, 0.3, 0.2])] + rng.normal(size=(6000, 2)) * (3.0, 22.0)
    return _split(np.clip(rows, [12.0, 40.0], [60.0, 400.0]))


_WORDS = (
    *("fever", "cough", "sputum", "antibiotic", "oxygen", "lung", "pneumonia", "chest"),
    *("pain", "knee", "fracture", "surgery", "cast", "x-ray", "bone", "walk"),
    *("insulin", "glucose", "diet", "weight", "feet", "kidney", "retina", "metformin"),
    *("sleep", "mood", "anxiety", "therapy", "family", "work", "appetite", "energy"),
)


def topics() -> Drawn:
    rng = np.random.default_rng(11)
    truth = np.full((4, 32), 0.3 / 24)
    for topic in range(4):
        truth[topic, 8 * topic : 8 * topic + 8] = 0.7 * rng.dirichlet(np.full(8, 3.0))
    truth /= truth.sum(axis=1, keepdims=True)
    mixed = rng.dirichlet(np.full(4, 0.3), 12000) @ truth
    notes = np.stack([rng.multinomial(40, each) for each in mixed]).astype(float)
    chosen = algorithms.TopicsProgram(columns=_WORDS, n_components=4, n_words=32)
    return _run("What doctors write about", chosen, _split(notes), 4.0), None


def _shapes(people: int) -> Floats:
    """Signals of eight numbers in three classes, and the class."""
    rng = np.random.default_rng(12)
    kinds = rng.integers(0, 3, people)
    waves = np.stack([np.sin(np.arange(8) * (each + 1) / 2) for each in range(3)])
    return np.column_stack([waves[kinds] + 1.4 * rng.normal(size=(people, 8)), kinds])


_SIGNAL = (*(f"lead {at + 1}" for at in range(8)), "rhythm")


def feature_classifier() -> Drawn:
    chosen = algorithms.FeatureClassifierProgram(
        columns=_SIGNAL,
        classes=(0, 1, 2),
        features={"kind": "random", "lower": [-3.0] * 8, "upper": [3.0] * 8, "waves": 60},
        directions=24,
        evaluate_share=0.4,
    )
    return _run("Rhythms of the heart", chosen, _split(_shapes(4000)), 3.0), None


def neural_classifier() -> Drawn:
    chosen = algorithms.NeuralClassifierProgram(
        columns=_SIGNAL,
        lower=np.array([-3.0] * 8 + [0.0]),
        upper=np.array([3.0] * 8 + [2.0]),
        classes=(0, 1, 2),
        steps=25,
        evaluate_share=0.4,
    )
    return _run("Rhythms of the heart, by a network", chosen, _split(_shapes(4000)), 3.0), None


def data_collaboration() -> Drawn:
    chosen = algorithms.DataCollaborationProgram(
        columns=_SIGNAL,
        classes=(0, 1, 2),
        features={"kind": "random", "lower": [-3.0] * 8, "upper": [3.0] * 8, "waves": 60},
    )
    return _run("Rhythms of the heart, from published records", chosen, _split(_shapes(3000)), 8.0), None


def synthetic() -> Drawn:
    rng = np.random.default_rng(5)
    count = 8000
    sex = rng.integers(0, 2, count)
    age = np.clip(rng.normal(52 + 6 * sex, 14, count), 18, 100).round()
    smoking = np.where(rng.random(count) < 0.45 - 0.003 * age, 2, rng.integers(0, 2, count))
    chosen = algorithms.SyntheticDataProgram(
        columns=("age", "sex", "smoking"),
        ranges={"age": (18, 100)},
        whole=("age",),
        levels={"sex": (0.0, 1.0), "smoking": (0.0, 1.0, 2.0)},
        bins=20,
    )
    table = np.column_stack([age, sex, smoking]).astype(np.float64)
    return _run("Synthetic patients", chosen, _split(table), 1.0), None


def guided() -> Drawn:
    space, truth = _brain()
    rng = np.random.default_rng(9)
    shifted = truth + 0.4 * np.roll(truth, 3, axis=1)
    people = [
        rng.laplace(size=(60, len(truth))) @ (shifted + 0.1 * rng.normal(size=truth.shape))
        + 0.3 * rng.normal(size=(60, truth.shape[1]))
        for _ in range(520)
    ]
    # The last forty are public people, who take no part in the study.
    sites = {name: Units.from_list(people[at * 120 : (at + 1) * 120]) for at, name in enumerate(SITES)}
    from zerosum.algorithms.guided_ica.public import PublicPeople

    facts = PublicPeople.of(Units.from_list(people[480:]), truth).parameters()
    chosen = algorithms.GuidedICAProgram(columns=space.columns, templates=truth, **facts)
    return _run("Networks guided by templates", chosen, sites, 4.0), space


def connectivity() -> Drawn:
    rng = np.random.default_rng(12)
    names = ("default", "salience", "control", "visual", "motor")
    people = []
    for at in range(600):
        weight = 0.5 + 0.35 * (at % 2) * (np.arange(5) < 3)
        rows = rng.normal(size=(180, 1)) * weight + rng.normal(size=(180, 5))
        people.append(np.hstack([rows, np.full((180, 1), float(at % 2))]))
    chosen = algorithms.ConnectivityProgram(columns=(*names, "group"), group="group", levels=("control", "patient"))
    sites = {name: Units.from_list(people[at * 150 : (at + 1) * 150]) for at, name in enumerate(SITES)}
    return _run("Connectivity of five networks", chosen, sites, 4.0), None


def additive() -> Drawn:
    rng = np.random.default_rng(6)
    count = 12_000
    age = np.clip(rng.normal(55, 16, count), 18, 95).round()
    dose = rng.gamma(2.0, 2.0, count).clip(0, 20)
    ward = rng.integers(0, 3, count)
    risk = -2 + 2.2 / (1 + np.exp(-(age - 60) / 5)) + 0.8 * (np.abs(dose - 5) > 3) + np.array([0.0, 0.6, -0.4])[ward]
    sick = rng.random(count) < 1 / (1 + np.exp(-risk))
    chosen = algorithms.AdditiveModelProgram(
        columns=("age", "dose", "ward", "sick"),
        ranges={"age": (18, 95), "dose": (0, 20)},
        whole=("age",),
        levels={"ward": ("a", "b", "c"), "sick": ("no", "yes")},
    )
    return _run(
        "Who falls ill again", chosen, _split(np.column_stack([age, dose, ward, sick]).astype(float)), 2.0
    ), None


STUDIES: dict[str, Callable[[], Drawn]] = {
    "mean": mean,
    "histogram": histogram,
    "covariance": covariance,
    "correlation": correlation,
    "describe": describe,
    "quantiles": quantiles,
    "survival": survival,
    "cox-regression": cox,
    "hypothesis-test": hypothesis_test,
    "linear-regression": linear,
    "logistic-regression": logistic,
    "multinomial-regression": multinomial,
    "poisson-regression": poisson,
    "polynomial-loss": polynomial,
    "pca": pca,
    "ica": ica,
    "k-means": k_means,
    "mixture": mixture,
    "topics": topics,
    "feature-classifier": feature_classifier,
    "neural-classifier": neural_classifier,
    "data-collaboration": data_collaboration,
    "synthetic-data": synthetic,
    "guided-ica": guided,
    "connectivity": connectivity,
    "additive-model": additive,
    "statistic": own_statistic,
}
