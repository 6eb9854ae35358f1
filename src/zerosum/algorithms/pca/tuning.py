"""All tuned constants of principal components: name, unit and source of each.

Symbols are those of `pca.program`: D columns, K components, n units, S(w) the standard deviation of the noise of a sum
of sensitivity 1 that takes the share w of the budget, s the standard deviation of the noise of one release in isometric
coordinates, and e = s sqrt(2 D) the edge of its eigenvalues.

No privacy depends on these constants: every contribution has norm at most 1 whatever they are. They decide how the
budget is split and how releases are used.

"Chosen by hand" means that no benchmark of the constant is recorded. `benchmarks/heldout.py` and `benchmarks/pca.py`
measure the result of all of them together (tables in docs/pca.md). Those of the centre and the clip were tuned together
on Covertype, Communities, Student t, 900 records, Fashion-MNIST and MNIST; that sweep is not recorded. Numerical guards
(such as 1e-300 in a denominator) and constants that follow from an equation stand beside their use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: solver, passes and requests --------------------------------------------------------------------

    first_pass_share: float = 0.3
    """Share of the budget of the first of two passes; the second takes the rest. Chosen by hand. docs/pca.md (ABIDE,
    walkers) compares two passes with one, not other shares."""
    matrix_columns: int = 2000
    """Largest number of columns for which `solver = "auto"` releases the whole matrix (2 million numbers). Chosen by
    hand; no benchmark recorded."""
    rounding_columns: int = 100
    """Number of columns from which records are rounded to 11 bits. Chosen by hand: with fewer columns the products are
    cheap (docs/pca.md, "Whole numbers")."""
    rounding_error: float = 0.05
    """Largest error of rounding records to 11 bits, as a fraction of the noise. Chosen by hand (docs/pca.md, "Whole
    numbers")."""

    # ---- program: histograms of norms ----------------------------------------------------------------------------

    histogram_bins: int = 40
    """Number of bins. Chosen by hand; no benchmark recorded."""
    histogram_span: float = 1e-6
    """Lowest edge, as a fraction of the largest possible norm: six decades, in steps of a factor of 1.4. Chosen by
    hand; no benchmark recorded."""
    histogram_share: float = 0.005
    """Share of the budget of each histogram. Chosen by hand; the prototype had 0.01. No benchmark recorded."""
    norm_limit: float = 1e90
    """Largest (and, inverted, smallest) squared norm of a row, so that clips and augmentation constants stay within the
    limits of the parameters of a statistic (`kernel.statistic`). Chosen by hand."""

    # ---- program: centring rounds --------------------------------------------------------------------------------

    centring_units: float = 113.0
    """Fewest units for a search of the centre, in multiples of S(1). A histogram of share 0.01 and sensitivity sqrt(2)
    has noise sqrt(2) S(0.01) = 14.1 S(1) per bin; n must be at least 8 times that. The factor 8 was chosen by hand."""
    centring_share_factor: float = 4.0
    """Share of half of the centring releases over sqrt(D) S(1)/n, the fraction of the units below which a direction is
    not visible. Tuned by hand on the data of docs/pca.md ("The split"); no sweep recorded."""
    centring_share_least: float = 0.03
    """Smallest share of half of the centring releases, of the budget of all releases but the histograms. Tuned by hand
    on the data of docs/pca.md; no sweep recorded."""
    centring_share_most: float = 0.09
    """Largest share of half of the centring releases, in the same unit. Tuned by hand on the data of docs/pca.md; no
    sweep recorded."""
    centring_share_total: float = 0.5
    """Largest share of four centring releases together that a study file may give. Chosen by hand."""
    column_threshold: float = 0.01
    """If the formula for the share of half of the centring releases gives less than this, they hold the last column
    only. On the data of docs/pca.md ("The split") the captured energy falls by at most 0.002 (0.026 if ranges are 3000
    times too wide), and messages are half as long."""
    column_share: float = 0.015
    """Share of each centring release that holds the last column only. Same source as `column_threshold`."""
    search_lift: float = 0.5
    """a^2, the square of the augmentation constant, over the median norm, while the centre moves. A large constant
    gives an accurate mean, and takes a part of each unit's norm from its second moment. Tuned by hand on the data of
    docs/pca.md; no sweep recorded."""
    main_lift: float = 0.015
    """The same ratio once the centre has converged, and in the main release. Same source as `search_lift`."""

    # ---- centering: the mean, the clip, the number of components -------------------------------------------------

    clip_quantiles: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
    """Candidates for the clip: quantiles of the units' norms. 0 means that each unit is divided by its own norm. Chosen
    by hand; no benchmark recorded."""
    contribution_least: float = 0.4
    """Smallest mean contribution that a clip may leave, as a fraction of the mean contribution of normalised units. It
    excludes clips so loose that most units are far below norm 1. Tuned by hand (see the module); no sweep recorded."""
    normalisation_loss: float = 0.05
    """Loss of captured energy, as a fraction, if all units are normalised and K = 1. Normalising changes the weights of
    the units, and so the components. Tuned by hand (see the module); no sweep recorded."""
    normalisation_exponent: float = 1.5
    """Exponent x of the factor K^-x on that loss. Tuned by hand (see the module); it has no derivation."""
    spectrum_exponent: float = 1.5
    """Exponent of the assumed spectrum: the k-th unknown eigenvalue is proportional to k^-1.5, in the choice of the
    clip and in the planner of subspace iteration. Chosen by hand; no benchmark recorded. `centering.ZETA` depends on
    it."""
    mean_significance: float = 3.0
    """Standard deviations of a chi-squared variable by which |v|^2 must exceed its mean under noise before the centre
    moves. The usual limit; chosen by hand."""
    corner_significance: float = 3.0
    """Standard deviations of noise that W must exceed before the code divides by W. The usual limit; chosen by hand."""
    corner_certainty: float = 6.0
    """The same limit where components are counted: a false component costs more than a noisy mean. Chosen by hand; no
    benchmark recorded."""
    mean_direction_significance: float = 3.0
    """Standard deviations of noise by which the value along the mean direction must exceed the average eigenvalue
    before the mean replaces the last component. The usual limit; chosen by hand."""
    trace_margin: float = 2.0
    """Standard deviations that are added to the noisy trace, so that the null spectrum is not too small. Chosen by
    hand; the isotropic runs of docs/pca.md check the false alarms of the whole test."""
    tilt_margin: float = 3.0
    """Standard deviations of the noise of the corner in the null spectrum of a matrix that was corrected for the mean.
    Chosen by hand; checked as `trace_margin`."""

    # ---- spectrum: edges -----------------------------------------------------------------------------------------

    matrix_edge_margin: float = 3.0
    """x in the limit e (1 + x D^(-2/3)) of the largest eigenvalue of noise: X = 2 x = 6 in the Tracy-Widom law, which
    is exceeded less than once in 100 000 releases."""
    product_edge_margin: float = 5.0
    """t in the limit sqrt(D) + sqrt(width) + t of the largest singular value of noise, in units of the noise of an
    entry: exceeded with probability at most exp(-t^2/2), once in 270 000 releases."""

    # ---- spectrum: damped coordinates and white coordinates ------------------------------------------------------

    damping_size: float = 0.5
    """Size to which strong directions are damped, as a fraction of e. One half is the phase transition e/2: the weakest
    eigenvalue that is visible at all. Chosen by hand; no benchmark recorded."""
    damping_margin: float = 1.5
    """Smallest size of a damped direction, as a multiple of the last wanted eigenvalue, so that noise does not exchange
    a damped direction for an unwanted one. Chosen by hand; no benchmark recorded."""
    eigenvalue_floor: float = 0.25
    """Lower limit for an eigenvalue, as a fraction of e. Whitening divides by its root; a smaller value would let one
    direction of noise take most of each unit's matrix. Chosen by hand; no benchmark recorded."""
    cosine_floor: float = 0.3
    """Lower limit for the squared cosine of a noisy vector with its own direction in `NoisySpectrum.forms`. Chosen by
    hand; no benchmark recorded."""
    direction_ratio: int = 2
    """Fewest directions that a first pass leaves to the second, over the number of components. Chosen by hand; no
    benchmark recorded."""

    # ---- spectrum: simulated releases ----------------------------------------------------------------------------

    spectrum_steps: int = 8
    """Iterations of `NoisySpectrum.estimate_spectrum`. Chosen by hand; no benchmark recorded."""
    spectrum_simulations: int = 2
    """Simulated releases in each of these iterations. Chosen by hand; no benchmark recorded."""
    replay_least: int = 4
    """Fewest simulated releases of `NoisySpectrum.replay`. Chosen by hand; no benchmark recorded."""
    replay_most: int = 20
    """Most simulated releases of `NoisySpectrum.replay`. Chosen by hand; no benchmark recorded."""
    replay_entries: int = 2_000_000
    """Matrix entries in all simulated releases of `NoisySpectrum.replay`, which bounds the time. Chosen by hand; no
    benchmark recorded."""

    # ---- subspace: rounds of subspace iteration ------------------------------------------------------------------

    rounds: int = 3
    """Number of rounds where no planner ran. Chosen by hand; no benchmark recorded."""
    growth: float = 2.0
    """Share of the last round over that of the first where no planner ran. Chosen by hand; no benchmark recorded."""
    extra: int = 10
    """Columns of the basis beyond the components where no planner ran. Chosen by hand; no benchmark recorded."""
    round_candidates: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    """Numbers of rounds that the planner compares. Chosen by hand; no benchmark recorded."""
    growth_candidates: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """Ratios of the last share to the first that the planner compares. Chosen by hand; no benchmark recorded."""
    extra_candidates: tuple[int, ...] = (0, 10)
    """Numbers of additional columns that the planner compares. Chosen by hand; no benchmark recorded."""
    energy_tolerance: float = 0.002
    """Fraction of the energy that is not worth another round. Chosen by hand; no benchmark recorded."""
    model_components: int = 64
    """Most components of the planner's model matrix, which bounds the time. Chosen by hand."""
    model_entries: int = 80_000
    """Most entries of a product in the planner's model, which bounds the time. Chosen by hand."""
    model_columns: int = 4_000
    """Most columns of the planner's model matrix, which bounds the time. Chosen by hand."""


TUNING = Tuning()
