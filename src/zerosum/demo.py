"""Demo of all schemes: the mean over four synthetic hospitals of unequal size, at the same epsilon.

Every scheme answers the same question on the same data, often enough to measure its error. The measured error is
compared with the one that the plan predicts from its noise. At equal epsilon the schemes differ only in whom a hospital
must trust and in how accurate the result is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import MeanProgram
from zerosum.data.synthetic import COLUMNS, MEASURES, RANGES, hospitals
from zerosum.kernel.schemes import Scheme
from zerosum.report.build import FILES, write_report
from zerosum.report.record import PrivacyReport, Result
from zerosum.secagg.keys import Identity
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, run

# Budget of each study, and the number of colluding sites.
EPSILON, DELTA, COLLUDERS = 1.0, 1e-5, 1
# Schemes in the order of the table.
SCHEMES = ("non-private", "pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local")


@dataclass(frozen=True)
class Line:
    """One scheme: predicted and measured error of the mean, as a share of the columns' ranges."""

    scheme: str
    trusted: str
    predicted: float
    measured: float
    epsilon: float | None


@dataclass(frozen=True)
class Demo:
    """Result of the demo.

    Attributes
    ----------
    sizes : dict
        Number of patients by hospital.
    lines : tuple of Line
        One for each scheme.
    alone : dict
        Root mean square error of each hospital's own mean, as a share of the ranges.
    result : Result
        A result of the default scheme.
    truth, estimate : array of shape (n_columns,)
        Pooled mean without noise, and the mean under the default scheme.
    """

    sizes: dict[str, int]
    lines: tuple[Line, ...]
    alone: dict[str, float]
    result: Result
    truth: NDArray[np.float64]
    estimate: NDArray[np.float64]

    @property
    def report(self) -> PrivacyReport:
        """Privacy report of the default scheme."""
        return self.result.report

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        return {
            "sites": self.sizes,
            "epsilon": EPSILON,
            "delta": DELTA,
            "colluders": COLLUDERS,
            "schemes": [vars(line) for line in self.lines],
            "one_hospital_alone": self.alone,
            "columns": list(COLUMNS),
            "mean": self.estimate.tolist(),
            "true_mean": self.truth.tolist(),
            "privacy": self.report.as_record(),
        }


def play(repeats: int = 80, on_step: Callable[[int, int], None] = lambda done, planned: None) -> Demo:
    """Run the same question `repeats` times under every scheme, with the same sites, policies and ledgers.

    Parameters
    ----------
    repeats : int
        Runs of each scheme. The relative standard error of a measured error is about 1 / sqrt(2 * 5 * repeats), for
        five independent columns.
    on_step : callable
        Receives (done, planned) after each run.
    """
    # The seed makes the data, which are the same in every demo. The noise is fresh: it comes from the operating system.
    data = hospitals(seed=7)
    lower, upper = (np.array([RANGES[column][i] for column in COLUMNS]) for i in (0, 1))
    # Errors are divided by the ranges, so that columns in different units can be averaged.
    span = upper - lower
    question = MeanProgram(columns=COLUMNS, lower=lower, upper=upper)
    truth = np.vstack(list(data.values())).mean(axis=0)
    lines, shown_result, estimate = [], None, truth
    with TemporaryDirectory() as folder:
        for number, scheme in enumerate(SCHEMES):
            # Fresh ledgers for each scheme, with a cap far above what the demo spends.
            policies = {name: _policy(name, Path(folder) / scheme) for name in data}
            # Differences from the pooled mean: the error that privacy adds, without that of sampling people.
            errors = []
            for repeat in range(repeats):
                result = run(
                    question,
                    data,
                    epsilon=EPSILON,
                    delta=DELTA,
                    scheme=scheme,
                    colluders=COLLUDERS,
                    unit="person",
                    policies=policies,
                    measured_in=MEASURES,
                    name="Five measurements in four hospitals",
                    noise="gaussian",  # one law for all schemes: Laplace noise does not divide under every one
                )
                errors.append((np.asarray(result.estimate["mean"]) - truth) / span)
                on_step(number * repeats + repeat + 1, len(SCHEMES) * repeats)
            # The predicted error depends on the plan only, so any of the results has it.
            predicted = float(np.mean(np.asarray(result.estimate["noise_std"]) / span))
            worst = result.report.worst_epsilon
            lines.append(
                Line(
                    scheme,
                    Scheme(scheme).facts.trusted_party,
                    predicted,
                    math.sqrt(float(np.mean(np.square(errors)))),
                    worst if math.isfinite(worst) else None,
                )
            )
            if scheme == DEFAULT_SCHEME:
                shown_result, estimate = result, np.asarray(result.estimate["mean"])
    if shown_result is None:
        raise RuntimeError("the default scheme must be among those shown")
    sizes = {name: len(rows) for name, rows in data.items()}
    # The same measure for a hospital that publishes its own mean without any noise: the difference between hospitals.
    alone = {name: math.sqrt(float(np.mean(((rows.mean(axis=0) - truth) / span) ** 2))) for name, rows in data.items()}
    return Demo(sizes, tuple(lines), alone, shown_result, truth, estimate)


def write_report_of(demo: Demo, folder: Path) -> Path:
    """Write the report of the study under the default scheme, and replace that of an earlier demo. It is signed with a
    new key, and nothing is written to the user's state folder."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    demo.result.write(folder)
    return write_report(folder, result=demo.result, key=Identity())


def _policy(hospital: str, folder: Path) -> Policy:
    """Policy with a temporary ledger."""
    ledger = folder / f"{hospital}.sqlite"
    return Policy.throwaway(hospital, ledger, delta=DELTA)


def draw(demo: Demo, path: Path) -> None:
    """Save a bar chart of the error of the joint mean by scheme."""
    # Imported here because it is slow; Agg needs no display.
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # matplotlib draws the first bar at the bottom, so the order is reversed.
    shown = [line for line in demo.lines if line.scheme != "non-private"][::-1]
    pooled = next(line for line in demo.lines if line.scheme == "pooled")
    names = {
        "pooled": "trusted coordinator\nsees every site's sum",
        "secure-sum": "Zerosum's secure sum\n(the default)",
        "zero-sum": "zero-sum noise, large",
        "pairwise": "zero-sum noise, pairwise",
        "cape-helper": "CAPE with noise dealer\n(capePCA)",
        "cape-published": "CAPE as published\n(capeDJICA, capeFM)",
        "local": "each site protects\nitself alone",
    }
    colours = {"pooled": "#9aa5b1", "secure-sum": "#0b7a75", "zero-sum": "#57b8a5", "pairwise": "#57b8a5"}
    figure, axes = plt.subplots(figsize=(9.5, 5.6), constrained_layout=True)
    for row, line in enumerate(shown):
        axes.barh(row, 100 * line.measured, color=colours.get(line.scheme, "#d9843b"), height=0.62, zorder=2)
        axes.plot([100 * line.predicted] * 2, [row - 0.38, row + 0.38], color="black", lw=2, zorder=3)
        times = (line.predicted / pooled.predicted) ** 2
        label = f"{100 * line.measured:.2f} %   ({times:.2f}× pooled variance)"
        axes.text(100 * max(line.measured, line.predicted) * 1.03, row, label, va="center", fontsize=10)
    axes.set_yticks(range(len(shown)), [names[line.scheme] for line in shown], fontsize=10)
    axes.set_xlabel("error of the joint mean, % of a column's range (bar: measured, black line: predicted)")
    axes.set_xlim(0, 100 * max(line.measured for line in shown) * 1.45)
    axes.grid(axis="x", color="#e5e8eb", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    patients = sum(demo.sizes.values())
    figure.suptitle(
        "Nearly the accuracy of pooled records, and no record leaves its hospital",
        fontsize=14,
        fontweight="bold",
        x=0.02,
        ha="left",
    )
    worst = max(demo.alone.values())
    axes.set_title(
        f"{len(demo.sizes)} hospitals, {patients} patients, every scheme at the same exact ε = {EPSILON:g}, δ = "
        f"{DELTA:g}, one hospital colluding.\nWithout a joint study, one hospital's own mean is up to "
        f"{100 * worst:.1f} % off, however little noise it adds.",
        fontsize=10,
        loc="left",
        color="#444",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
