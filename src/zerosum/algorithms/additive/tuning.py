"""All tuned constants of additive models: name, unit and source of each.

Symbols are those of `additive.program`: p terms, n units, u = n/(noise sqrt(p)) the units over the noise of a cell that
would take the whole budget.

No privacy depends on these constants: sizes and sensitivities of all releases are planned before data are read.

"Prototype" is a study of about 60 settings on the training part of the Adult data (26 000 people, 12 columns), which
chose its values. "Train part" is a comparison on the same rows with benchmarks/additive.py, and "made-up" one on its
made-up tables. The test part of Adult was not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """What the planner sets from u: fine bins and most cells of an ordered column, rounds, and share of the grids."""

    bins: int
    cells: int
    rounds: int
    grid_share: float


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: plan -------------------------------------------------------------------------------------------

    settings: tuple[tuple[float, Setting], ...] = (
        (500.0, Setting(64, 24, 3, 0.10)),
        (5000.0, Setting(256, 48, 5, 0.10)),
        (float("inf"), Setting(1024, 56, 7, 0.15)),
    )
    """The setting below each value of u. Prototype's values, but for the most cells: with 56 a site sends less than
    50 kB on Adult at epsilon 4. Train part, 64 and 96 were within .0005 of each other at epsilon 4."""
    response_share: float = 0.4
    """Share of the budget of the responses. Prototype's value."""
    score_share: float = 0.1
    """Share of the products of scores, for numbers. On a made-up table of hourly counts at epsilon 4 the first
    solution explained .88 of the variance with it; the prototype's rule, which has none and divides steps by 3, .63.
    For classes there is none: on the train part AUC at epsilon 4 was .917 with it
    and .918 without, at 0.5 .894 and .897."""
    total_cells: int = 600
    """Cells of all columns of numbers together, from which the planner divides the most cells of a column. Chosen by
    hand, for a fit of some seconds."""
    total_bins: int = 8192
    """Fine bins of all columns of numbers together. Chosen by hand, for messages below 100 kB."""
    cells_least: int = 12
    """Least of that number. Chosen by hand."""
    unknown: float = 1000.0
    """u that is assumed where the number of units is not public. Chosen by hand."""
    small: float = 300.0
    """u below which the plan warns. Prototype: on Adult AUC .77 at u = 70, .85 at 210 and .89 at 690."""
    hopeless: float = 10.0
    """u below which the plan is refused: the noise of the mean response of a tenth of the units exceeds that mean's
    whole range by then. Chosen by hand."""

    # ---- cells ---------------------------------------------------------------------------------------------------

    fan: int = 8
    """Bins of a grid in one bin of the next wider grid. Prototype's value."""
    plain: int = 16
    """Bins up to which a column has no grid: it keeps them all. Prototype's value."""
    evidence: float = 1.5
    """Least count of a cell, in standard deviations of the noise of a grid. Prototype's value."""
    least: float = 20.0
    """Least count of a cell, in units. Prototype's value."""
    pair_bins: int = 12
    """Most bins of a column in a pair."""

    # ---- model ---------------------------------------------------------------------------------------------------

    noise_least: float = 0.5
    """Least standard deviation of the noise of a cell, in units: without noise the weights would be infinite. Half a
    unit, far below any noise that protects somebody."""
    count_least: float = 5.0
    """Least count of a cell in the fit: released counts may be negative. Prototype's value."""
    missing_evidence: float = 3.0
    """Standard deviations of its noise by which the count of missing values must exceed 0, for an effect of their own.
    The usual limit; chosen by hand."""
    mean_most: float = 0.49
    """Largest absolute mean of t, away from the ends. Prototype's value."""
    memory: float = 0.8
    """Weight of a round over that of the next. Prototype's value; .5 and 1 were within .0005 on the train part."""
    curvature: float = 0.3
    """w of rounds for classes, above 1/4, the largest weight of a unit: smaller ones overshoot where columns are
    collinear. Prototype's value; .2 was within .001 on the train part."""
    steps: tuple[int, int] = (8, 5)
    """Steps of the marginal likelihood: at the start, and in every round. 20 and 12 gave the same AUC on the train
    part."""
    tau_start: float = 0.1
    """Variances of effects at the start. Prototype's value."""
    tau_least: float = 1e-6
    """Least variance of effects, far below an effect that matters. Prototype's value."""
    kappa_start: float = 1e-3
    """Variances of what the curvature misses, at the start, relative to squared counts. Chosen by hand."""
    kappa_least: float = 1e-12
    """Least of these. Chosen by hand."""
    residual_start: float = 0.03
    """Residual variance of t for numbers at the start; it is estimated. Prototype's value."""
    constant_variance: float = 100.0
    """Prior variance of the constant: nothing is known of it. Prototype's value."""
    ridge: float = 1e-3
    """Part of the sampling variance that totals of terms have. Prototype's value."""
    jitter: float = 1e-9
    """Relative addition to the diagonal of a covariance, against rounding. Prototype's value."""
    score_limit: float = 1.5
    """Scores are clipped at this number of their standard deviations: with 2.5 the noise of a correlation is three
    times as large. Train part, 1.2 to 2 were within .0005."""
    spread_least: float = 1e-2
    """Standard deviation of a term's scores, in units of their largest value, below which it has no correlations.
    Chosen by hand."""
    correlation_most: float = 0.95
    """Largest absolute correlation of scores. Chosen by hand."""
    eigenvalue_least: float = 0.01
    """Least eigenvalue of the matrix of correlations. Chosen by hand."""


TUNING = Tuning()
