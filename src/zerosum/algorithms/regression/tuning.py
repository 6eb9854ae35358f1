"""All tuned constants of the regressions: name, unit and source of each.

Symbols are those of `regression.base`: D coefficients (`width`), u a row of features in a frame, c the clip of a row, n
units, S(f) the standard deviation of the noise of a mean of sensitivity 1 that takes the share f of the budget.

No privacy depends on these constants: every contribution is within its bound whatever they are
(`zerosum.statistics.regression` has the proofs). They decide how the budget is split, where rows and residuals are
clipped, and how releases are used.

Sources. "Prototype" is the prototype of linear regression that `benchmarks/regression.py` compares with; its values
were swept on Communities and Crime, KEGG and synthetic rows with 20 and 50 columns, and the sweep is not recorded. The
other values were chosen by hand on the kinds of data of docs/regression.md ("Accuracy"); no record says which run
chose which, and "no benchmark recorded" marks these. Numerical guards (such as 1e-300 in a denominator) and constants
that follow from an equation stand beside their use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- base: limits on declared values, as validation only -----------------------------------------------------

    declared_most: float = 1e4
    """Largest (and, inverted, smallest) declared center and scale in half ranges, clip in standardised units, and
    `room`. Chosen by hand: no real study comes near it, and the arithmetic stays in range."""
    offset_most: float = 1e4
    """Largest absolute offset, in units of the linear predictor. Chosen by hand, for the same reason."""

    # ---- base: the frame -----------------------------------------------------------------------------------------

    mean_noise_most: float = 0.2
    """Largest standard deviation of the noise of a released column mean, in half ranges, at which `standardise =
    "auto"` buys the column moments. Chosen by hand; no benchmark recorded."""
    scale_least: float = 0.05
    """Smallest standard deviation of a feature that is used as its scale, in half ranges. Narrower features would be
    enlarged without limit, and their noise with them. Prototype's value."""
    intercept_share: float = 0.1
    """Least squared constant column, as a fraction of the squared norm of the features at the clip. The prior and the
    damping treat all columns alike, so a small constant beside many features would be shrunk too much. Chosen by hand;
    no benchmark recorded."""
    variance_significance: float = 2.0
    """Standard deviations of its noise by which the released variance of the response must exceed 0 before `r_squared`
    divides by it. The usual limit; chosen by hand."""
    weight_least: float = 0.02
    """Lower limit of the estimated mean weight, as a fraction of the largest weight: it is a divisor, and a released
    mean below it is mostly noise. Chosen by hand; no benchmark recorded."""
    uniform_square: float = 1 / 3
    """Squared clip per feature of linear models and polynomial losses where only ranges are known: the mean square of a
    value that is uniform in [-1, 1]. Prototype's value."""

    # ---- base and goodness_of_fit: the histogram of the fit ------------------------------------------------------

    residual_span: float = 5.0
    """Half width of the histogram of held-out residuals, in estimated residual standard deviations. Chosen by hand;
    normal residuals exceed it with probability 6e-7."""
    residual_bins: int = 20
    """Bins of the histogram of residuals of linear models. Chosen by hand; no benchmark recorded."""
    count_bins: int = 40
    """Bins of the histogram of residuals of Poisson models, whose axis is the whole range of counts. Chosen by hand; no
    benchmark recorded."""
    score_span: float = 5.0
    """Half width of the histogram of scores of logistic models, in units of the linear predictor: probabilities from
    0.0067 to 0.9933. Chosen by hand; no benchmark recorded."""
    score_bins: int = 40
    """Bins of that histogram. Chosen by hand; no benchmark recorded."""
    auc_draws: int = 400
    """Simulated noise vectors for the standard deviation of the area under the ROC curve, which is not linear in the
    counts. Chosen by hand: 400 draws give a standard deviation to about 4 per cent (1/sqrt(2 * 400))."""

    # ---- inference: the posterior --------------------------------------------------------------------------------

    posterior_iterations: int = 6
    """Iterations of the fixed point in `posterior` and `shrunk_posterior`, whose noise depends on its own step.
    Chosen by hand: three suffice."""
    clipped_ratio_most: float = 0.9
    """Largest mean square of clipped residuals, over the squared bound, from which the unclipped share is estimated.
    Nearer to 1 nearly all residuals are at the bound, and the share cannot be estimated. Chosen by hand."""
    identified_ratio: float = 0.5
    """Pooled standard error of a coefficient, over its prior standard deviation, above which it is reported as not
    identified. Chosen by hand; no benchmark recorded."""

    # ---- shrinkage: the posterior from a Hessian that is shrunk towards its diagonal ---------------------------------

    hessian_floor: float = 0.5
    """Least diagonal entry of a released Hessian, over the standard deviation of its noise. Chosen by hand; no
    benchmark recorded."""
    hessian_edge: float = 2.0
    """Standard deviations of its noise by which a diagonal entry must exceed 0 to be more than the floor. The usual
    limit; chosen by hand."""
    correlation_square: float = 0.05
    """Squared correlation that is added to the variance of the noise in the weights of `shrinkage.denoised`, so that
    one column without noise does not decide alone. Chosen by hand; no benchmark recorded."""

    # ---- linear: the method and its rounds -----------------------------------------------------------------------

    moment_columns_most: int = 256
    """Most coefficients of the method "moment", whose releases grow with the square. Chosen by hand; no benchmark
    recorded."""
    moment_rounds: int = 24
    """Rounds of the method "moment". Chosen by hand; no benchmark recorded."""
    burn_in_divisor: int = 3
    """The first 1/3 of the rounds is left out of the final average where noise is large (one round where it is small).
    Chosen by hand; no benchmark recorded."""
    last_damping: float = 0.5
    """Damping of the last step, over that of the rounds: the gradient of the last step is an average, and has less
    noise. Chosen by hand; no benchmark recorded."""
    first_bound: float = 0.35
    """Bound of the residuals after the first round, over that of the first. Prototype's value."""
    bound_fall_most: float = 2.0
    """Largest factor by which the bound of the residuals falls in one round, so that one noisy release cannot clip all
    later ones. Chosen by hand; no benchmark recorded."""
    covariances_most: int = 48
    """Largest number of coefficients whose covariances are in the result: the text of the matrices then stays within
    the disk space that is reserved for a result. Chosen by hand; no benchmark recorded."""
    bound_margin: float = 2.0
    """Standard deviations of its noise that are added to the mean square of the residuals, from which the next bound
    follows. A bound only falls, so that with fewer it follows the smallest noise.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    gradient_momentum: float = 0.7
    """Momentum of the method "gradient". Prototype's value."""
    learning_time: float = 0.17
    """Learning time, rounds * rate/(1 - momentum) in units of 1/c^2, times the noise of a mean gradient over c. Only
    this product decides how far noise moves the coefficients. Prototype's value."""
    planned_residual: float = 0.3
    """Bound of the residuals that the learning time assumes, in half ranges of the response. Prototype's value."""
    gradient_rounds: tuple[int, int] = (12, 100)
    """Fewest and most rounds of the method "gradient". Prototype's values."""
    learning_rate_most: float = 2.0
    """Largest learning rate, in units of 1/c^2. Gradient descent on a quadratic diverges above 2 over the largest
    eigenvalue, which is at most c^2. Prototype's value."""

    # ---- linear: clips -------------------------------------------------------------------------------------------

    linear_noise: float = 0.008
    """Spectral norm of the noise of S/n over c^2, below which the clips of rows and residuals widen. Chosen by hand; no
    benchmark recorded."""
    linear_exponent: float = 1.5
    """Both clips are proportional to q^1.5 with q = sqrt(`linear_noise`/noise): wider clips have less bias and more
    noise. Chosen by hand; no benchmark recorded."""
    linear_residual_clip: tuple[float, float] = (1.5, 5.0)
    """Least and largest clip of residuals, in their standard deviations. The least is the prototype's value; the
    largest was chosen by hand."""
    linear_room: tuple[float, float] = (0.8, 2.5)
    """Least and largest squared clip of a row, over the mean square of its scaled features. The least is the
    prototype's value; the largest was chosen by hand."""

    # ---- linear: closing rounds and the errors. Where no other source stands, chosen by hand on the made-up kinds of
    # `benchmarks/coverage.py`

    closing_residual_clip: tuple[float, float] = (1.5, 8.0)
    """Least and largest clip of residuals in closing rounds, in their standard deviations.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    closing_room: tuple[float, float] = (0.8, 8.0)
    """Least and largest squared clip of rows in closing rounds, over their mean square.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    closing_steps: int = 24
    """Clips of each kind among which the planner chooses.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    residual_bias: tuple[float, float] = (0.012, 0.45)
    """Typical bias of the gradient at the tightest clip of residuals, and its rate of decay with the clip, both in
    standard deviations of the residuals. Root mean squares over the made-up kinds of `benchmarks/coverage.py`."""
    row_bias: tuple[float, float] = (0.016, 0.5)
    """The same for the clip of rows, with the rate per unit of `room`."""
    unseen_residuals: tuple[float, float] = (0.04, 1.3)
    """Relative loss of efficiency by the tightest clip of residuals (Huber's estimate at 1.5: .037), and its rate of
    decay with the clip. Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    unseen_rows: tuple[float, float] = (0.08, 2.5)
    """The same for rows; of normal features."""
    intercept_bias: float = 8.0
    """Squared typical bias of the intercept, over that of other coefficients, less 1.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bias_prior: float = 2.0
    """Number of coordinates that the typical bias counts for, beside those of the data.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bias_least: float = 0.03
    """Smallest squared factor between the bias of the data and the typical one.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bias_most: float = 100.0
    """Largest such factor, by coordinate. Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    trace_ratio_most: float = 3.0
    """Largest factor by which the wide clip lengthens rows, in squares.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    moments_mismatch: float = 0.03
    """Relative difference of moments with tight and wide clips beyond their scale.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    constant_kept: tuple[float, float] = (0.3, 1.05)
    """Limits of the released mean square of the constant column, over its square before rows are clipped.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    eigenvalue_least: float = 0.002
    """Least eigenvalue of the features' moments that the errors allow for, over their average.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    eigenvalue_exponent: float = 0.2
    """The prior density of an eigenvalue falls with this power of it: 0 is uniform, 1 is uniform on a logarithmic
    scale. Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    eigenvalue_nodes: int = 48
    """Nodes of the average over the true eigenvalue of a direction.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    square_least: float = 0.1
    """Least mean square of a feature, over the average, that the prior assumes.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    slope_least: float = 0.7
    """Least share of unclipped residuals by which a gradient is divided.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bias_caution: float = 3.0
    """Factor on the typical bias where clips are chosen for inference.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    shrinkage_noise: float = 0.3
    """Factor on the noise of the steps in that share: the noise is an upper estimate where moments are noisy.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    shrinkage_doubt: float = 0.35
    """Standard deviation of the share of the slopes to keep, from the known noise alone.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bend_least: float = 0.3
    """Least mean square of the predictions, over that with uncorrelated features.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    check_share: float = 0.25
    """Share of closing rounds where wide clips do not pay.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    closing_share: float = 0.4
    """Share of the rounds with wide clips. Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    prior_spread: float = 1.0
    """Widest prior standard deviation of the effect of a typical change of one feature, in standard deviations of the
    response. Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    response_ratio: float = 4.0
    """Variance of the response over that of the residuals where no variance of the response was released.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    bound_growth_most: float = 1.3
    """Largest factor by which the bound of the residuals changes in one closing round.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""

    # ---- glm: clips ----------------------------------------------------------------------------------------------

    newton_room: float = 0.8
    """Least squared clip per scaled feature that the planner tries, over its mean square. Chosen by hand: below it
    nearly all rows have less weight, which changes nothing."""
    newton_room_step: float = 1.25
    """Factor between the squared clips that the planner tries.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    newton_room_steps: int = 16
    """Number of the squared clips that the planner tries; the largest is 0.8 * 1.25^15 = 23.
    Chosen by hand on the kinds of data of `benchmarks/coverage.py`."""
    misfit: float = 0.01
    """Bias of a coefficient at a squared clip of the mean square, where the model is wrong. The planner's model of it
    is this over the squared clip. Chosen by hand on made-up data (`benchmarks/coverage.py`)."""
    misfit_residual: float = 0.7
    """q: size of the mean residual of long rows where a model of counts is wrong, in standard deviations of a
    residual. Chosen on the kind "heavy" of `benchmarks/coverage.py`."""
    loss_most: float = 0.9
    """Largest share of the information that is taken to be lost in rows of less weight; a limit on noise. Chosen by
    hand."""
    newton_room_ranged: float = 0.45
    """The same where only ranges are known: a feature in [-1, 1] has a mean square of at most 1. Chosen by hand; no
    benchmark recorded."""

    # ---- glm: rounds and start -----------------------------------------------------------------------------------

    newton_rounds: int = 12
    """Number of Newton rounds. Chosen by hand; no benchmark recorded."""
    newton_first_shares: tuple[float, ...] = (0.3, 0.5, 0.8)
    """Shares of the first rounds, over those of the others. Chosen by hand; no benchmark recorded."""
    start_share: float = 0.5
    """Share of the quadratic start, relative to the share of a Newton round. Chosen by hand; no benchmark recorded."""
    start_ridge: float = 1.0
    """Ridge of the quadratic start before Newton rounds, over the noise of an entry times sqrt(D). Chosen by hand; no
    benchmark recorded."""
    alone_ridge: float = 2.0
    """The same ridge without Newton rounds, since nothing corrects the start later, and of polynomial losses: about the
    norm of the noise of the quadratic part. From the prototype of logistic regression (2 sigma sqrt(D))."""
    predict_worth: float = 35.0
    """The same ratio for `goal = "predict"`. The quadratic ranked better at ratios of 6 to 33 (few people), and the
    rounds at 79 and more, on made-up data and heart disease. Chosen by hand."""
    newton_worth: float = 6.3
    """Least ratio of the prior standard deviation to the noise of a coefficient for `method = "newton"`; below it the
    quadratic alone ranks better. Chosen by hand; no benchmark recorded."""

    # ---- glm: the model that the planner and the posterior assume ------------------------------------------------

    predictor_spread: float = 1.75
    """Prior standard deviation of the change of the linear predictor by a typical change of one feature. Chosen by
    hand; no benchmark recorded."""
    remainder: float = 0.25
    """Factor of the error of second order in `shrinkage.average`. Taylor's formula gives E[h' (u.d)^2 u_j]/2, with h'/h
    between -1 and 1 and an odd moment of the features: half of the largest value. Chosen by hand."""
    bending: float = 0.25
    """Squared relative error of an entry of a Hessian in `shrinkage.average`, over the mean square change of the
    predictor; 1 is the largest value. Chosen on the kinds "tumour" and "steep" of `benchmarks/coverage.py`."""
    range_spread: float = 4.0
    """Prior standard deviation of the change of the linear predictor over half the range of a column whose size is not
    known. At 3, 4 and 6 a level of ten people in 10 000 was covered alike, and estimates were best at 3 and worst at
    6 (kinds "ten" of `benchmarks/coverage.py`)."""
    range_certainty: float = 10.0
    """Diagonal entry of the Hessian, over its noise, at which that prior is twice as wide: with sizes known no better
    than at 3 times the noise, 1.4 left it without effect. 10 and 20 hardly differ."""
    intercept_spread: float = 4.0
    """Prior standard deviation of the intercept of logistic models: a share of 0.02 is one standard deviation.
    Chosen by hand."""
    step_prior: float = 2.0
    """The prior of the Newton steps is narrower by this factor. At 1, 2 and 4 the share of the deviance explained was
    .467, .599 and .638 on the kind "tumour" of `benchmarks/coverage.py` at epsilon 1, and the worst coverage .80, .75
    and .15."""
    score_prior: float = 5.0
    """The prior of the score coefficients is narrower by this factor: ranking gains more from shrinkage than estimates
    do. Chosen by hand on made-up data: factors from 2 to 6 differ little."""
    hessian_typical: float = 0.15
    """Typical h = p (1 - p) of a logistic model, for the planner: 0.25 at p = 1/2 and 0.15 at p = 0.18. Chosen by
    hand; no benchmark recorded."""
    weight_typical: float = 0.5
    """Mean weight of a unit that the planner assumes, since weights are data. Chosen by hand; no benchmark recorded."""

    # ---- glm: counts ---------------------------------------------------------------------------------------------

    hessian_weight: float = 1.2
    """Weight b of the Hessian beside a Poisson gradient. The sensitivity is sqrt(4 + b^2): a larger b makes the
    gradient noisier, a smaller one the Hessian. Chosen by hand; no benchmark recorded."""
    tail_noise: float = 0.009
    """Noise of a coefficient below which the clips of counts and rates widen. Chosen by hand; no benchmark recorded."""
    tail_growth: float = 0.5
    """Growth of these clips, over log(`tail_noise`/noise). On the counts of `benchmarks/coverage.py` at epsilon 10 a
    factor of 1 covered down to .00 of a coefficient ("visits"), 1.5 .70, and 2.4 .85 with errors 1.7 times as large."""
    tail_most: float = 8.0
    """Largest factor on these clips. Chosen by hand; no benchmark recorded."""
    rate_clip: float = 2.0
    """Rates are clipped at twice the mean rate plus 1, before the factor on the clips. Chosen by hand; no benchmark
    recorded."""
    shape_most: float = 1e3
    """Largest shape of a negative binomial: a limit on noise. Chosen by hand."""
    rate_least: float = 0.01
    """Smallest mean count, as a fraction of the largest count; its logarithm is the start. Chosen by hand; no benchmark
    recorded."""
    exposure_spread: float = 1.5
    """Standard deviations of the offset above its mean that the clips of counts allow. Chosen by hand; no benchmark
    recorded."""
    exposure_divisor: float = 2.0
    """The exposure at that offset is divided by 2, because the clips already allow several times the mean rate. Chosen
    by hand; no benchmark recorded."""

    # ---- functional: polynomial losses ---------------------------------------------------------------------------

    polynomial_room: float = 1.0
    """Squared clip per scaled feature: its mean square. Chosen by hand; no benchmark recorded."""
    constant_weight: float = 0.3
    """Weight of the constant term of the loss, over that of the others: it serves the reported loss only. Chosen by
    hand; no benchmark recorded."""
    predictor_most: float = 5.0
    """Standard deviation of the linear predictor of a typical row at the default radius of the search. Chosen by hand;
    no benchmark recorded."""
    descent_steps: int = 500
    """Most steps of the projected gradient descent. Chosen by hand; no benchmark recorded."""
    armijo: float = 1e-4
    """Fraction of the predicted decrease that a step must reach (Armijo's condition). The usual value; chosen by
    hand, the same as in Nocedal and Wright 2006, section 3.1."""


TUNING = Tuning()
