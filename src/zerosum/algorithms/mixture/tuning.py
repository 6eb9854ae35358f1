"""All tuned constants of mixtures: name, unit and source of each.

Symbols are those of `mixture.program`: D columns, K components with means a_k, variances v_k and weights w_k.

No privacy depends on these constants: every contribution has norm at most 1 whatever they are. They decide how the
budget is split and how releases are used.

"Chosen by hand" means that no benchmark of the constant is recorded. `benchmarks/mixture.py` measures the result of all
of them together (tables in docs/mixtures.md). Values "of the prototype" are those of the prototype whose accuracy the
design notes record, with the same order of releases. Numerical guards (such as 1e-300 in a denominator) and constants
that follow from an equation stand beside their use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: shares of the budget ---------------------------------------------------------------------------

    early_share: float = 0.22
    """Share of the budget of second moments, start and rounds in the subspace together, at `usual_noise`. The prototype
    had 0.29. Chosen by hand; no benchmark recorded."""
    early_parts: tuple[float, float, float] = (0.55, 0.2, 0.25)
    """Parts of it: second moments, start, rounds in the subspace. The prototype had 0.38, 0.28 and 0.34. Chosen by
    hand; no benchmark recorded."""
    usual_noise: float = 0.005
    """Noise of the mean of one column times K sqrt(D) at which `early_share` holds; in half ranges. The share grows
    with the square root of the noise. Chosen by hand; no benchmark recorded."""
    early_share_limits: tuple[float, float] = (0.1, 0.4)
    """Least and largest `early_share` after that. Chosen by hand; no benchmark recorded."""

    # ---- program: clip of the second moments ---------------------------------------------------------------------

    norm_bins: int = 80
    """Bins of the histogram of squared norms. Chosen by hand; no benchmark recorded."""
    norm_span: float = 1e-6
    """Lowest edge of that histogram over the highest; edges are logarithmic, so bins are 19 per cent wide. Chosen by
    hand; no benchmark recorded."""
    unclipped_share: float = 0.6
    """Quantile of the squared norms that is the clip of the second moments: the share of units that the clip does not
    change. The prototype had 0.95. docs/mixtures.md ("Tight clips") gives the reason; no benchmark of the value is
    recorded."""

    # ---- program: spectrum ---------------------------------------------------------------------------------------

    eigenvalue_floor: float = 1e-3
    """Smallest eigenvalue of the second moment, over the largest. Chosen by hand; no benchmark recorded."""
    eigenvalue_noise_floor: float = 0.1
    """The same, over the edge of the noise (`spectrum.noise_edge`). Chosen by hand; no benchmark recorded."""
    strength_floor: float = 0.02
    """Smallest variance of the means along a direction of the subspace, over the largest one: its root is a divisor.
    Chosen by hand; no benchmark recorded."""
    strength_noise_floor: float = 0.3
    """The same, over the edge of the noise. Chosen by hand; no benchmark recorded."""
    cell_variance: float = 0.5
    """First variance of a component without a subspace, over that of a cell of equal volume. Chosen by hand; EM
    corrects it."""

    # ---- program: the start --------------------------------------------------------------------------------------

    tensor_clip: float = 1.5
    """Clip of the third moment, over the norm of a typical white tensor. Chosen by hand; no benchmark recorded."""
    equal_weights: float = 0.5
    """Part of equal weights 1/K in the weights of the start, since the noisy weights are divisors of the means. Chosen
    by hand; no benchmark recorded."""
    cells_per_component: int = 48
    """Public cells of the start "cells" for each component. Chosen by hand; no benchmark recorded."""
    cells_most: int = 1000
    """Most of these cells. The number of released sums grows with it, the sensitivity does not. Chosen by hand; no
    benchmark recorded."""
    candidates_per_cell: int = 20
    """Random public points from which each cell is chosen. Chosen by hand; no benchmark recorded."""
    cell_radius: float = 1.5
    """Radius of the ball of cells, in root mean square distances from the centre (sqrt(D) standard deviations per
    column). Chosen by hand; no benchmark recorded."""
    cell_softness: float = 1e-3
    """Variance of a cell over the squared distance of neighbouring cells. It is so small that a row belongs to its
    nearest cell. Chosen by hand; no effect while it is far below 1."""
    weight_least: float = 0.1
    """Smallest weight of a component of the start "cells", over 1/K. Chosen by hand; no benchmark recorded."""

    # ---- program: rounds of EM -----------------------------------------------------------------------------------

    residual_clip_subspace: float = 1.1
    """Clip of residuals in the subspace of the means, over their root mean square norm sqrt(v d). Larger than in all
    columns: in few directions norms fluctuate more. Chosen by hand; no benchmark recorded."""
    residual_clip: float = 0.9
    """The same in all columns. Value of the prototype."""

    # ---- components: one EM step ---------------------------------------------------------------------------------

    count_evidence: float = 3.0
    """Smallest count of a component that counts as more than noise, in standard deviations of the noise; also the
    least distance of two means, in standard deviations of the noise, for `carried`. One-sided, normal: a false-alarm
    rate of 0.13 per cent."""
    peak_distance: float = 2.0
    """Distance of two means, in standard deviations of the data, below which two equal normal components have one peak.
    Exact: the second derivative of the sum of the densities at the middle changes sign there."""
    spread_noise: float = 0.05
    """Noise of a released spread over its count at which the released variance and the earlier one have equal weight.
    Chosen by hand; no benchmark recorded."""
    variance_ratio: float = 5.0
    """Largest factor between the variance of a component and the mean variance. Chosen by hand; no benchmark
    recorded."""
    move_most: float = 2.0
    """Longest move of a mean in one round, over the clip. Clipped residuals have a mean of at most one clip; a longer
    move is mostly noise. Chosen by hand; no benchmark recorded."""


TUNING = Tuning()
