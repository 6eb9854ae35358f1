"""All tuned constants of independent components: name, unit and source of each.

Symbols are those of `ica.program` and `ica.filter`: R sources, N = R (R - 1)/2 pairs of sources, S(w) the standard
deviation of the noise of a sum of sensitivity 1 that takes the share w of the budget.

No privacy depends on these constants: every contribution has norm at most 1 whatever they are. They decide how the
budget is split and how releases are used.

"Prototype" is the NumPy script in which the method was first tried. "Chosen by hand" means that no benchmark of the
constant is recorded; `benchmarks/ica.py` and `benchmarks/heldout_ica.py` measure the result of all of them together
(tables in docs/ica.md). Numerical guards (such as 1e-300 in a denominator) and constants that follow from an equation
stand beside their use.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: solver and split of the budget -----------------------------------------------------------------

    matrix_columns: int = 2000
    """Most dimensions for which the reduction releases a whole matrix; beyond, subspace iteration comes first. Chosen
    by hand; no benchmark recorded."""
    autocorrelation_seconds: float = 5.0
    """Seconds between rows below which time courses of blood flow count as autocorrelated. Chosen by hand; no benchmark
    recorded."""
    window: int = 9
    """Rows over which the size of a source is averaged, for rows that are not autocorrelated. Chosen by hand; no
    benchmark recorded."""
    autocorrelation_window: int = 1
    """The same number for autocorrelated rows. Chosen by hand; no benchmark recorded."""
    reduction_share: float = 0.6
    """Largest share of the budget for the reduction. Chosen by hand; no benchmark recorded."""
    reduction_share_least: float = 0.4
    """Smallest share of the budget for the reduction. Chosen by hand; no benchmark recorded."""
    pass_growth: float = 1.6
    """Share of a pass of the reduction over the share of the pass before it. Chosen by hand; no benchmark recorded."""
    direction_strength: float = 0.85
    """Assumed eigenvalue of the weakest wanted direction, over n/sqrt(R): the eigenvalue if all units had the same R
    equally strong directions and no others. Chosen by hand; no benchmark recorded."""
    whitening_share: float = 0.05
    """Share of the whitening release, of the budget that the reduction leaves. Chosen by hand; no benchmark
    recorded."""
    cumulant_share: float = 0.3
    """Share of the fourth cumulants, of the budget that the reduction leaves, where no planner ran. Chosen by hand; no
    benchmark recorded."""
    cumulant_sources: int = 40
    """Most sources for which fourth cumulants are released: 123 410 numbers. Chosen by hand; no benchmark recorded."""
    rounds: int = 10
    """Number of rounds where no planner ran. Chosen by hand; no benchmark recorded."""
    round_growth: float = 2.0
    """Share of the last round over that of the first. Chosen by hand; no benchmark recorded."""

    # ---- program: the planner ------------------------------------------------------------------------------------

    kurtosis_ratio: float = 4.3
    """c in the predicted clarity c n/(noise R^1.5): about the kurtosis of Laplace sources over the kurtosis that
    `directions` finds in noise. Chosen by hand; no benchmark recorded."""
    clarity_least: float = 4.2
    """Clarity below which no cumulants are released if dimensions are reduced; there the cumulants take nearly all of
    the budget that is left. Dimensionless. Chosen by hand; no benchmark recorded."""
    clarity_half: float = 5.0
    """Clarity at which about half of the budget that is left is enough for the cumulants; without a reduction, the
    least for which they are released. Dimensionless. Chosen by hand; no benchmark recorded."""
    clarity_tolerance: float = 0.99
    """Factor on `clarity_least` that keeps rounding errors of the planned share on the safe side. Chosen by hand."""
    cumulant_share_limits: tuple[float, float] = (0.8, 0.45)
    """Largest share of the cumulants at `clarity_least` and at `clarity_half`, linear in between. Chosen by hand; no
    benchmark recorded."""
    cumulant_clarity: float = 5.5
    """Clarity that the share of the cumulants should give: the share is (5.5/clarity)^2 within its limits. Chosen by
    hand; no benchmark recorded."""
    cumulant_share_least: float = 0.12
    """Smallest share of the cumulants that the planner gives. Chosen by hand; no benchmark recorded."""
    rounds_many: int = 12
    """Rounds without a start from cumulants, and without noise. Chosen by hand; no benchmark recorded."""
    rounds_medium: int = 10
    """Rounds after a start of medium clarity. Chosen by hand; no benchmark recorded."""
    rounds_few: int = 6
    """Rounds after a clear start, and after a start of least clarity, for which little budget is left. Chosen by hand;
    no benchmark recorded."""
    clarity_clear: float = 9.0
    """Clarity from which a start counts as clear. Chosen by hand; no benchmark recorded."""
    clarity_per_source: float = 0.9
    """The same limit per source, for many sources. Chosen by hand; no benchmark recorded."""

    # ---- program: the rounds -------------------------------------------------------------------------------------

    late_rounds: float = 0.6
    """Fraction of the rounds after which the kinds of the sources should be known: slopes are then accumulated and get
    less weight. Chosen by hand; no benchmark recorded."""
    probe_rounds: Fraction = Fraction(2, 3)
    """Fraction of the rounds after which rounds are evaluated at known rotations. Chosen by hand; no benchmark
    recorded."""
    overshoot_rounds: float = 6.0
    """The overshoot of rotations in the first half of the rounds is (number of rounds)/6, within 1 and
    `overshoot_most`. Chosen by hand; no benchmark recorded."""
    overshoot_most: float = 2.0
    """Largest overshoot, a factor on rotations. Chosen by hand; no benchmark recorded."""

    # ---- start: directions from the cumulant tensor --------------------------------------------------------------

    starts: int = 5
    """Random starts besides JADE. The prototype used 5 as well; no benchmark recorded."""
    start_steps: int = 200
    """Most polar steps from one start. Chosen by hand; no benchmark recorded."""
    jade_sweeps: int = 10
    """Jacobi sweeps in JADE. JADE is only a start, so it need not converge. Chosen by hand; no benchmark recorded."""
    shift_first: float = 0.5
    """First shift of a polar step, over the mean squared kurtosis. Chosen by hand; no benchmark recorded."""
    shift_most: float = 100.0
    """Shift at which a start counts as converged, in the same unit: steps are then about one per cent. Chosen by hand;
    no benchmark recorded."""
    noise_level_factor: float = 0.86
    """c in the fit c R^x to the simulated noise level of kurtoses (values in `start.noise_level`)."""
    noise_level_exponent: float = 0.6
    """x in the same fit."""

    # ---- joint_diagonalization: the bootstrap --------------------------------------------------------------------

    replicates: int = 20
    """Bootstrap replicates behind a stability. Chosen by hand; no benchmark recorded."""
    replicate_sweeps: int = 40
    """Most Jacobi sweeps in each replicate; a correlation of maps does not need the full precision. Chosen by hand; no
    benchmark recorded."""
    bias_replicates: int = 5
    """Replicates that are bootstrapped again for the bias correction, and second-level replicates of each. Chosen by
    hand; no benchmark recorded."""

    # ---- likelihood: the joint fit -------------------------------------------------------------------------------

    part_spread: float = 0.2
    """Prior standard deviation of a part p_k (ratio to the usual slope), of each source by itself. Chosen by hand; no
    benchmark recorded."""
    part_spread_common: float = 0.3
    """The same, common to all sources. Chosen by hand; no benchmark recorded."""
    cube_dilution: float = 6.0
    """Rate at which the normalised cube score loses slope when light-tailed sources are mixed: the slope is divided by
    sqrt(1 + cube_dilution (1 - sum_k G_ik^4)), because the variance of the cube grows as the mixture becomes more
    Gaussian. Dimensionless. Chosen by hand; no benchmark recorded."""
    fit_step_most: float = 0.5
    """Largest entry of one step: radians for an angle, a ratio for a part. The model is strongly curved in the angles.
    Chosen by hand; no benchmark recorded."""
    fit_gain: float = 0.1
    """Gain in log likelihood below which the search stops: far below the 0.5 of one standard deviation. Chosen by
    hand."""
    fit_damping: float = 0.3
    """Levenberg-Marquardt damping of the first step, relative to the diagonal of the curvature. Chosen by hand; no
    benchmark recorded."""
    fit_damping_most: float = 1e4
    """Damping above which no step is expected to gain. Chosen by hand; no benchmark recorded."""
    fit_damping_factor: float = 4.0
    """Factor by which the damping falls after a step with a gain, and grows after one without. Chosen by hand; no
    benchmark recorded."""
    fit_steps: int = 15
    """Most steps of the joint fit after each round. Chosen by hand; no benchmark recorded."""

    # ---- filter: start and priors --------------------------------------------------------------------------------

    angle_variance: float = 0.5
    """Variance of an angle without information, radians squared; also the cap of any variance. Prototype's value; a
    uniform angle within 70 degrees has the same variance."""
    kurtosis_noise_ratio: float = 1.3
    """Kurtoses below this multiple of the root mean square kurtosis of pure noise (`start.noise_level`) do not
    determine their own sign. Prototype's value; no benchmark recorded."""
    kurtosis_noise_bias: float = 0.7
    """Fraction of the squared noise level that is subtracted from a squared kurtosis. Prototype's value; no benchmark
    recorded."""
    kurtosis_floor: float = 0.02
    """Lower limit of that difference, as a fraction of the squared noise level. Prototype's value; no benchmark
    recorded."""
    sign_log_odds: float = 8.0
    """Log odds of the sign of a kurtosis whose noise-corrected square equals the squared noise level. Chosen by hand;
    no benchmark recorded."""
    sign_log_odds_cap: float = 3.0
    """Largest ratio of those squares that counts for the log odds. Chosen by hand; no benchmark recorded."""
    common_sign_limit: float = 1.5
    """Sum of the kurtoses over their norm beyond which most sources share a sign: random signs have mean 0 and variance
    1. Prototype's value; no benchmark recorded."""
    common_sign_log_odds: float = 3.0
    """Log odds, added for all sources, of the sign that dominates the kurtoses of the start. Chosen by hand; no
    benchmark recorded."""
    sign_pseudo_count: float = 0.25
    """Pseudo-count of sources of either sign, as a fraction of R, in the estimated proportion of signs. Chosen by hand;
    no benchmark recorded."""

    # ---- filter: slopes and kinds --------------------------------------------------------------------------------

    slope_memory: float = 0.5
    """Factor on the precision of earlier slopes in each early round, and on the odds of the start in each round:
    components change while they are unmixed. Prototype's value."""
    scale_memory: float = 0.7
    """Factor on the weight of earlier rounds in the running mean of the scale: norms of contributions change while B
    converges. Prototype's value."""
    score_both_slope: tuple[float, float, float] = (0.6, 0.45, 0.0)
    """Slope of the score "both" as a linear combination of the slopes of SCORES. Prototype's values (no source
    there)."""
    slope_translation: float = 1.0
    """Most standard deviations by which shrinkage moves a slope towards its group (limited translation, Efron and
    Morris 1972). Chosen by hand; no benchmark recorded."""
    slope_least: float = 0.3
    """Lower bound of a slope used as a divisor, over the mean slope. Prototype's value; no benchmark recorded."""
    slope_noise_least: float = 0.5
    """Lower bound of the same slope, in standard deviations of the mean slope. Chosen by hand; no benchmark
    recorded."""
    kind_slopes: tuple[tuple[float, float, float], ...] = (
        (0.68, 0.33, 0.25),
        (0.35, 0.75, 0.57),
        (-0.46, -1.05, -1.54),
    )
    """Slopes by SCORES (columns: volatility, tanh, cube) of separated sources of each kind (rows), per unit of `scale`:
    bursts (GARCH), heavy tails (Laplace), light tails (uniform). From simulations that are not recorded."""
    mixture_slope_positive: float = 0.55
    """Fraction of the slopes that remains if two sources of positive kurtosis are mixed by 45 degrees. The kurtosis
    itself falls to one half. No benchmark recorded."""
    mixture_slope_negative: float = 0.22
    """The same for negative kurtosis: the normalised cube of light tails loses more (`cube_dilution`). No benchmark
    recorded."""
    part_least: float = 0.2
    """Smallest fraction of the slopes of a kind that the likelihood of kinds allows for. Chosen by hand; no benchmark
    recorded."""
    overshoot_evidence: float = 2.0
    """Evidence of a source's kind, in standard deviations, below which its rotations may overshoot. Chosen by hand; no
    benchmark recorded."""
    kind_evidence: float = 4.0
    """Evidence of a source's kind, in standard deviations, above which the kind is certain and a round spends less on
    slopes. Chosen by hand; no benchmark recorded."""
    slope_weight: float = 0.035
    """Weight of slopes in a release, over sqrt(R - 1), before the kinds of all sources are certain. The factor sqrt(R -
    1) keeps the part of R slopes constant beside N pairs. Chosen by hand; no benchmark recorded."""
    slope_weight_late: float = 0.0115
    """The same weight in late rounds, and once all kinds are certain. Chosen by hand; no benchmark recorded."""

    # ---- filter: errors of the linearisation and unresolved components -------------------------------------------

    turn_most: float = 1.0
    """Largest rotation of a pair in one update, in radians. Chosen by hand; no benchmark recorded."""
    stretch_most: float = 0.5
    """Largest spectral norm of the whitening correction of one update; below 1 the correction is invertible. Chosen by
    hand; no benchmark recorded."""
    innovation_limit_source: float = 4.0
    """Excess of the mean squared innovation over the pairs of one source, in standard deviations of a chi-squared mean,
    that counts as a failure of the filter. Chosen by hand (the prototype had 2)."""
    innovation_limit_all: float = 3.0
    """The same over all pairs. Chosen by hand (the prototype had 2)."""
    unresolved_part: float = 0.8
    """A component is unresolved if its fitted part is below this fraction of the median of the better half, and below
    `unresolved_evidence`. Chosen by hand; no benchmark recorded."""
    unresolved_evidence: float = 5.0
    """Fitted part of an unresolved component over its own standard deviation, at most. Chosen by hand; no benchmark
    recorded."""
    unresolved_rotation: float = 0.4
    """Root mean square rotation of an unresolved component among the others, in radians. Chosen by hand; no benchmark
    recorded."""

    # ---- filter: stability ---------------------------------------------------------------------------------------

    spurious_odds: float = 1.0
    """Prior odds that the slopes of all components are spurious. Chosen by hand; no benchmark recorded."""
    spurious_odds_sign: float = 0.1
    """Prior odds that the slopes of the components of one sign are spurious. Chosen by hand; no benchmark recorded."""
    proof: float = 3.0
    """Evidence of all components of one sign together that counts as proof, in standard deviations. One-sided, normal:
    a false-alarm rate of 0.13 per cent."""
    tail_weights: tuple[float, float, float] = (0.0, 0.8, 0.6)
    """Combination of slopes (norm 1, by SCORES) that proves heavy tails. Few or autocorrelated rows lower the slopes of
    tanh and cube and never raise them, but they raise that of volatility, which has weight 0. Weights chosen by
    hand."""
    class_odds: tuple[float, float] = (0.03, 0.001)
    """Prior odds, against a resolved source, that a component is an unresolved mixture of two sources, or Gaussian,
    with a start from cumulants. The values are chosen by hand. `benchmarks/heldout_ica.py stability` measures whether
    the odds pay (docs/ica.md, "How to read stability"): with them 1.1 per cent of the components have a stability that
    is too high by more than 0.1, without them 5.4 per cent. The odds of mixtures lower the root mean square error of
    the stability (0.341 to 0.316). Those of Gaussian components raise it slightly (0.306 to 0.316), but make
    `above_noise` right (3.0 instead of 5.0 of 5 components, of which 3 are not Gaussian)."""
    class_odds_random: tuple[float, float] = (1.0, 0.3)
    """The same odds with a random start. Chosen by hand; no benchmark recorded."""
    probe_evidence: float = 6.0
    """Total evidence that known rotations should give, in standard deviations. Chosen by hand; no benchmark
    recorded."""
    probe_angle_most: float = 0.1
    """Largest angle of a known rotation, in radians. Chosen by hand; no benchmark recorded."""
    source_evidence: float = 7.0
    """Part of a resolved source in the joint fit, in standard deviations, at least. Chosen by hand; no benchmark
    recorded."""
    mixture_evidence: float = 4.5
    """Mean part of an unresolved mixture in the joint fit, in standard deviations. Chosen by hand; no benchmark
    recorded."""
    mixture_spread: float = 1.5
    """Spread of that part, in standard deviations. Chosen by hand; no benchmark recorded."""
    fit_sources: int = 10
    """Fewest sources for which the joint fit classifies components: with fewer there are too few pairs, and the slopes
    classify them. Chosen by hand; no benchmark recorded."""
    mixture_correlation: float = 0.75
    """Correlation of an unresolved mixture of two with the nearer source: near 1/sqrt(2), which two equal halves have.
    Chosen by hand; no benchmark recorded."""
    class_evidence_most: float = 5.0
    """Evidence, in standard deviations, beyond which the classification by slopes gains no further certainty: a source
    that is merely weaker than the others would otherwise be called a mixture. Chosen by hand; no benchmark recorded."""
    reality: float = 0.5
    """Probability above which a component counts as real: the more probable of the two cases."""


TUNING = Tuning()
