"""All tuned constants of the regressions: name, unit and source of each.

Symbols are those of `regression.base`: D coefficients (`width`), u a row of features in a frame, c the clip of a row, n
units, S(f) the standard deviation of the noise of a mean of sensitivity 1 that takes the share f of the budget.

No privacy depends on these constants: every contribution is within its bound whatever they are
(`zerosum.statistics.regression` has the proofs). They decide how the budget is split, where rows and residuals are
clipped, and how releases are used.

Sources. "Prototype" is the prototype of linear regression that `benchmarks/regression.py` compares with; its values
were swept on Communities and Crime, KEGG and synthetic rows with 20 and 50 columns, and the sweep is not recorded. The
other values were chosen by hand on the kinds of data of docs/regression.md ("Accuracy"); no record says which run
chose which, and "no benchmark recorded" marks these. Linear models: these kinds were in view throughout, and some
choices (small tables, Communities and Crime) were made on seeds that the tables of docs/regression.md use too; the
figures of made-up tables are of `benchmarks/clip_bias.py --people 60000`. Numerical guards (such as 1e-300 in a
denominator) and constants that follow from an equation stand beside their use.
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

    direction_seen: float = 1.0
    """Standard deviations of its noise by which an eigenvalue of the scaled moments must exceed 0 for its direction to
    be known. At that limit a true eigenvalue of .2 deviations, of which the steps of linear rounds leave half of an
    effect, has a probability of a tenth. Lowered from 1.5 after a look at the tuned kinds of benchmarks/coverage.py."""

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
    class_coefficients_most: int = 2000
    """Most coefficients of all classes of a multinomial model: a release has about half of the square of this number.
    Chosen by hand, for releases below 16 MB."""
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

    # ---- linear: closing rounds and the errors. "Made-up tables" are the 100 of `benchmarks/clip_bias.py` ----------

    noisy: float = 0.15
    """Norm of the noise of S/n over c^2, above which there are few rounds and no closing one. R^2 of 40 runs of the
    kinds "small" and "diabetes" of `benchmarks/coverage.py` at epsilon 0.5: .006 and .281 so, -.014 and .208 with one
    closing round."""
    noisy_rounds: int = 8
    """Number of rounds there. 40 runs of the kind "small" at epsilon 0.5: R^2 -.007 at 8 and -.036 at 6 rounds, with a
    standard deviation of .13 between runs, so that the difference may be chance. Chosen by hand."""
    closing_share: tuple[float, float] = (0.15, 0.5)
    """Least and largest share of closing rounds. Chosen by hand."""
    closing_noise: float = 0.02
    """The same noise up to which the share is the largest; above it falls with the root of the noise. Chosen by hand on
    Communities and Crime at epsilon 0.5 and 1 (6 seeds, those of docs/regression.md)."""
    score_edges: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
    """Edges of the histogram of the norms of scores, over the norm of a typical score. Chosen by hand."""
    score_clip: tuple[float, float] = (1.34, 50.0)
    """Least and largest clip of scores, over a typical score. At the least the gradient has the noise of the tightest
    separate clips, 1.5 * sqrt(0.8). Chosen by hand."""
    closing_steps: int = 40
    """Clips among which the least expected error is sought: neighbours differ by a tenth. Chosen by hand."""
    closing_stages: int = 3
    """Places of the closing rounds where noise is small. Chosen by hand: a step that is twice too long leaves (1 -
    2)^3 of the bias with one place, and averages of it with three."""
    stage_noise_most: float = 0.02
    """Noise of the gradient of a typical score over all closing rounds, up to which there are several places. Chosen by
    hand."""
    score_tail_nodes: int = 24
    """Nodes of the Gauss-Hermite rule of the mixture. Chosen by hand; not compared with others."""
    score_tail_most: float = 1.6
    """Largest spread t of the mixture: kurtosis 3 exp(4 t^2) = 84 000. Chosen by hand."""
    score_tail_spreads: int = 17
    """Number of spreads on the grid: steps of 0.1. Chosen by hand."""
    score_tail_scales: tuple[float, float] = (0.2, 3.0)
    """Least and largest scale of the mixture, over a typical score. Chosen by hand; not checked on data."""
    score_tail_sizes: int = 25
    """Number of scales on the grid: steps of an eighth. Chosen by hand."""
    score_tail_misfit: tuple[float, ...] = (1.0, 1.0, 0.8, 0.5, 0.25, 0.15)
    """Relative error of the model of the histogram, by bin; the last one for all further bins. The law is used beyond
    clips alone, and a misfit of the body must not decide the tail. With .15 for all bins the mean excess over 12 was
    .36 of the true one (geometric mean of 32 tables of `benchmarks/clip_bias.py` with seeds of their own, noise of 4
    in 10 000 people), and 1.07 with (2, 2, 2, 1, .3, .15); with much noise the latter gave twice the true one."""
    score_tail_prior: float = 0.7
    """Standard deviation of the half-normal prior of the spread t. Chosen by hand."""
    score_tail_least: float = 0.1
    """Least share of the mean square that a clip keeps, a limit on noise. Chosen by hand."""
    trace_least: float = 0.05
    """Least trace of the moments over the squared clip, a limit on noise. Chosen by hand."""
    bias_caution: float = 3.0
    """Factor on a bias beside noise where the clip and the average of the gradients are chosen: noise is known, and a
    bias is not. Chosen by hand; other changes were made at the same time, so that no run shows its effect alone."""
    closing_bias: float = 0.5
    """Standard deviation of the bias of a coordinate of the gradient over the mean excess of the clipped norms. On the
    made-up tables its root mean square is .31 at a clip of 4, .51 at 8 and .79 at 16; .36 to .47 for the intercept.
    Measured by `benchmarks/clip_bias.py`."""
    closing_factor_most: float = 4.0
    """Largest factor by which the seen bias of the opening rounds enlarges that variance. Chosen by hand."""
    opening_bias: float = 0.01
    """The bias of the opening rounds at narrow clips, in standard deviations of the residuals, where no histogram is
    released. Between the medians (.001 to .015 by quarters of the excess) and the root mean squares (.003 to .029).
    Measured by `benchmarks/clip_bias.py`."""
    opening_rate: float = 0.12
    """Its rate of decay with the product of the clip of residuals and of the root of `room`. Chosen by hand."""
    opening_clip: float = 0.7
    """Clip of scores of the same bias as separate clips, over their product. Chosen by hand."""
    opening_least: float = 3.0
    """Least such clip: below it the mean excess is mostly that of normal laws, which have no bias. Chosen by hand."""
    opening_excess: float = 0.35
    """The bias over the mean excess at that clip. On the made-up tables .27, .30, .29 and .54 by quarters of the
    excess. Measured by `benchmarks/clip_bias.py`."""
    opening_floor: float = 0.002
    """A part of the bias that does not show in the excess: at the quarter of the lightest tails the median is .0011 and
    the root mean square .0026. Measured by `benchmarks/clip_bias.py`."""
    opening_unseen: float = 0.05
    """Sampling variance of the difference of the clipped and the whole gradient, over that of the gradient. Chosen by
    hand."""
    intercept_bias: float = 8.0
    """Squared typical bias of the intercept, over that of other coefficients, less 1. Chosen by hand: it is large at
    tight clips and about 2 at wide ones."""
    bias_prior: float = 2.0
    """Number of coordinates that the typical bias counts for, beside those of the data. Chosen by hand."""
    share_error: float = 1.15
    """Factor on the variance of the average of the two gradients. Chosen by hand: errors over stated ones were 1.02 to
    1.15 without it, some of them in the data of a test (40 to 60 runs of normal and of hourly data)."""
    bias_least: float = 0.03
    """Smallest squared factor between the bias of the data and the typical one. Chosen by hand."""
    lengthening_most: float = 3.0
    """Largest ratio of the mean squares of whole and of clipped rows, a limit on noise. Chosen by hand."""
    normal_doubt: float = 0.3
    """Relative error of the mean square of residuals that are taken for normal, at tight clips. On the made-up tables
    the standard deviation is low by .05 to .26, by quarters. Measured by `benchmarks/clip_bias.py`."""
    normal_least: float = 0.5
    """Least factor by which released scores correct that mean square, a limit on noise. Chosen by hand."""
    sandwich_spread: float = 0.5
    """Prior standard deviation of the trace of the second moment of scores, over that of residuals of constant
    variance. Chosen by hand: the kinds of `benchmarks/coverage.py` have ratios of 1 to 2.4."""
    sandwich_least: float = 0.1
    """Least variance of a score in a direction, over that of residuals of constant variance, a limit on noise. Chosen
    by hand."""
    constant_kept: tuple[float, float] = (0.3, 1.05)
    """Limits of the released mean square of the constant column, over its square before rows are clipped. Chosen by
    hand."""
    eigenvalue_least: float = 0.002
    """Least eigenvalue of the features' moments that the errors allow for, over their average. Chosen by hand: a
    correlation of .998 in a pair."""
    eigenvalue_exponent: float = 0.2
    """The prior density of an eigenvalue falls with this power of it: 0 is uniform, 1 is uniform on a logarithmic
    scale. Chosen by hand."""
    eigenvalue_nodes: int = 48
    """Nodes of the average over the true eigenvalue of a direction. Chosen by hand."""
    square_least: float = 0.1
    """Least mean square of a feature, over the average, that the prior assumes. Chosen by hand."""
    slope_least: float = 0.7
    """Least share of unclipped residuals by which a gradient is divided, a limit on noise. Chosen by hand."""
    shrinkage_noise: float = 0.3
    """Factor on the noise of the steps in the share of the slopes to keep: that noise is an upper estimate where
    moments are noisy. R^2 on the kinds "small" and "diabetes" (40 runs): .3 has the best smallest value, .15 is better
    on average for "diabetes" (.271 instead of .236 at epsilon 0.5). Chosen by hand."""
    shrinkage_doubt: float = 0.35
    """Standard deviation of the share of the slopes to keep, from the known noise alone. Chosen by hand; .2 gave the
    same in these runs."""
    bend_least: float = 0.3
    """Least mean square of the predictions, over that with uncorrelated features. Chosen by hand."""
    prior_spread: float = 1.0
    """Widest prior standard deviation of the effect of a typical change of one feature, in standard deviations of the
    response. Chosen by hand."""
    response_ratio: float = 4.0
    """Variance of the response over that of the residuals where no variance of the response was released. Chosen by
    hand."""

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
    than at 3 times the noise, 1.4 left it without effect. 10 and 20 hardly differ. Chosen by hand."""
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
