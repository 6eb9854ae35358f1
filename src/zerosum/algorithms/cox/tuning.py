"""Constants of Cox regression.

They were chosen on made-up cohorts (`benchmarks/cox.py --cohorts`): proportional hazards, staggered entry, effects that
fade, rare levels and nearly collinear columns. `parts`, `smooth`, `drift`, `drift_weight`, `within`, `band`, `wander`,
`fade`, `bend`, `collinear`, `parts_power`, `spread_center`, `spread_log` and the curvatures were changed after a look
at the real sets of that benchmark (not at its `HELD_OUT`), so that its figures are not blind for them. No record says
which run chose which value.

No privacy depends on these constants. `zerosum.statistics.cox` proves the sensitivity for any stop, weight and matrix
within its limits. The constants decide three things:

- how the budget is split between the moments, the table and the rounds (`moments_share`, `table_share`, `rounds`);
- where rows are stopped and weighted, as a trade of privacy noise against lost information (`stops`, `rooms`, `drift`);
- the priors of the fit and the errors beside privacy noise that intervals contain (`shift`, `smooth`, `wander`,
  `within`, `band`, `loose`).

Numbers that only prevent a division by zero or an overflow stand beside their use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of `zerosum.algorithms.cox`. Deviations of coefficients are per standard deviation of a column."""

    bins: int = 24
    """Default number of bins of time; edges are horizon (i/bins)^`power`."""
    power: float = 1.5
    """Early bins are short, since most hazards fall."""
    moments_share: float = 0.04
    """Share of the budget for the moments of the columns."""
    table_share: float = 0.04
    """Share of the budget for the table of exits."""
    rounds: int = 5
    """Number of rounds of score and second moments."""
    parts: int = 4
    """Parts of the time whose baseline is fitted with the coefficients."""
    part_size: float = 0.9
    """Constant of a part of the time beside columns of size 1."""
    stratum_size: float = 1.0
    """Constant of a stratum."""
    stops: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
    """Bounds of the expected number of events that are compared."""
    single_size: float = 0.5
    """The same if there is one stratum only."""
    rooms: tuple[float, ...] = (0.5, 0.65, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.2)
    """Squared clips over the mean squared length of rows that are compared."""
    drift: float = 0.06
    """How far effects of stopped times may be from those of the rest, for the choice of the bounds: the bias of a
    coefficient over the root of the share of events that are stopped."""
    drift_weight: float = 0.1
    """The same of rows with small weights."""
    wander: float = 0.15
    """How far effects of the information that is lost may be from those of the rest, in intervals."""
    fade: float = 0.06
    """Relative error of a coefficient from stopping where effects change with the time or are not linear, in intervals:
    on real sets such coefficients were off by 0.02 to 0.2 of their size at large budgets."""
    within: float = 0.15
    """What steps of the baseline between parts leave open within parts, in intervals."""
    band: float = 0.1
    """Standard error of the logarithm of the baseline's cumulative hazard that bins of constant hazard leave."""
    within_merged: float = 0.25
    """How far hazards within merged bins may be from constant: the deviation of the share of their hazard that is spent
    at the middle. Chosen by hand."""
    thin: float = 1.0
    """Standard error of the logarithm of the cumulative hazard where few are at risk. Chosen by hand."""
    risk_stand_out: float = 2.0
    """Deviations of its noise that the number at risk must exceed to be known. Chosen by hand."""
    shift: float = 0.6
    """Prior deviation of the logarithm of a part's baseline from that of the table."""
    smooth: float = 0.2
    """Prior deviation of its change from one part to the next."""
    constant: float = 2.0
    """Prior deviation of the logarithm of a stratum's level from that of the table."""
    weak: float = 0.5
    """Prior deviation of a coefficient behind the intervals."""
    size_log: float = -1.5
    """Mean of the logarithm of the prior deviation of coefficients, behind the scores."""
    size_spread: float = 0.6
    """Its standard deviation."""
    loose: float = 0.1
    """Relative deviation of a Hessian from events times second moments."""
    loose_parts: float = 0.12
    """The same for means of columns by part of the time, in standard deviations of a column."""
    curvature: float = 1.0
    """b, the weight of second moments beside the score."""
    first_curvature: float = 1.0
    """The same in the first round, of all rows."""
    predictor: float = 0.8
    """Standard deviation of the linear predictor in the model that chooses the bounds. Chosen by hand."""
    center: float = 0.5
    """Prior deviation of the mean of a column, in half ranges, which a mean rarely exceeds. Chosen by hand."""
    scale_least: float = 0.05
    """Least scale of a column, in half ranges, as `scale_least` of the other regressions."""
    weight_error: float = 0.1
    """Prior relative deviation of the sum of the weights of rows, and of the number of events that are left from round
    to round. Chosen by hand."""
    weight_least: float = 0.2
    """Least mean weight of a row: a divisor. Chosen by hand."""
    first_floor: float = 0.02
    """Least eigenvalue of the first Hessian in units of its diagonal. Chosen by hand."""
    floor: float = 0.03
    """The same in later rounds."""
    correlation_floor: float = 0.03
    """Least eigenvalue of the correlations of all people, beside what noise requires. Chosen by hand."""
    semicircle: float = 0.45
    """Further floor of these eigenvalues, in spectral norms of a matrix of the noise: about half of the semicircle's
    radius. Chosen on made-up cohorts."""
    whiten_floor: float = 0.03
    """Least eigenvalue of correlations that whitening enlarges to 1: noise of such a direction is enlarged at most by
    its inverse root. Chosen by hand."""
    variance_floor: float = 0.01
    """Least variance of a scaled column among events in whitening. Chosen by hand."""
    at_risk_least: float = 0.02
    """Least share of a stratum that is taken to be at risk: a divisor. Chosen by hand."""
    events_least: float = 0.3
    """Least number of events of a merged bin, so that its logarithm exists. Chosen by hand."""
    stand_out_events: float = 5.0
    """Events of a merged bin where the noise is small. Chosen by hand."""
    smooth_factors: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Factors of `smooth` that the releases choose from."""
    parts_factors: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """Factors of `loose_parts` over which the releases decide, column by column."""
    parts_power: float = 4.0
    """Power with which their prior falls."""
    spread_center: float = 0.35
    """Median of the prior of a column's standard deviation, in half ranges."""
    spread_binary: float = 0.8
    """The same of a column of the range 0 to 1, most of which are two-valued."""
    spread_log: float = 0.4
    """Standard deviation of the prior of its logarithm."""
    spread_wide: float = 2.0
    """The same over that, where it is asked whether a range may be far too wide."""
    spread_low: float = 1.0
    """Posterior deviations by which a standard deviation may be lower there."""
    sizes: tuple[float, ...] = tuple(math.exp(-4 + 0.125 * step) for step in range(41))
    """Prior deviations of the coefficients that the releases choose from: exp(-4) to exp(1)."""
    share_least: float = 0.005
    """Least share of a level, and of the rest, in the first step: a divisor. Chosen by hand."""
    tilt_most: float = 8.0
    """Most by which the first step changes the variance of a two-valued column. Chosen by hand."""
    late_loose: float = 0.2
    """Relative deviation of late second moments from those of all time, in the test of proportional hazards. Chosen by
    hand."""
    late_least: float = 0.1
    """Least share of late events in that test: a divisor."""
    score_bins: int = 6
    """Bins of the score in the table for the concordance index. Noise grows with the root of their number, and pairs in
    one bin count half."""
    score_times: int = 6
    """Bins of the time there, with about equal numbers of events; pairs in one bin are left out."""
    bend: float = 0.2
    """What third derivatives leave out of a score that is moved by one standard deviation."""
    rare: float = 1.4
    """A two-valued column is scaled to at most this times the root of the number of columns."""
    known: float = 0.2
    """Privacy noise of a coefficient above which it is not identified: noise alone makes a hazard ratio of 1.5 or 0.67
    for one standard deviation in one of twenty studies."""
    doubt_most: float = 5.0
    """Largest ratio of the error of an eigenvalue to it in the stated noise."""
    size_least: float = 0.05
    """Least mean square of a scaled column in the prior behind the intervals."""
    collinear: float = 1.0
    """An eigenvalue of the correlations of the columns below this many times its error is not known."""
    collinear_most: float = 0.3
    """Largest such eigenvalue of columns that are called nearly collinear. Chosen by hand."""
    hidden_share: float = 0.1
    """A coefficient is hidden if more than this share of its column lies in such combinations."""
    events_each: float = 10.0
    """Events per column below which a coefficient that is not identified has too few events (Peduzzi et al. 1996)."""
    inflation: float = 2.0
    """Ratio of a coefficient's noise to that with all others known, from which on the reason is collinearity."""
    stand_out: float = 3.0
    """Bins of the table are merged until their events exceed this many standard deviations of their noise."""
    spread_most: float = 2.5
    """Largest standard deviation of the predictor for which the marginal hazard is inverted."""


TUNING = Tuning()
