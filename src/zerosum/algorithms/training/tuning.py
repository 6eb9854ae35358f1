"""All tuned constants of classifiers and networks: name, unit and source of each.

No privacy depends on these constants: gradients are clipped to the clip whatever it is, and the noise is planned for
it. They decide how long training lasts and how released gradients are used.

Sources. The rule of the linear classifier was fitted to the best of 8700 random settings on parts of the training
images of MNIST and Fashion-MNIST, with 2000 to 50 000 images and epsilon 1 to 8 (docs/training.md, "What is released";
the search itself is not recorded, `benchmarks/classifier.py` measures its result on other images). The rule of networks
was found by simulation on parts of the training rows of synthetic classes, forest cover types and digits, with 800 to
9000 weights and noise from 3e-5 to 4e-3 of a unit's gradient; the simulations are not recorded. There the best path
length of the weights is inversely proportional to the noise and shorter for more weights, and the number of steps
matters little unless steps are too long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- classifier: rounds, steps and clip ----------------------------------------------------------------------

    reference_noise: float = 8.9e-4
    """Noise of an entry of the mean gradient of norm 1, at which the next three values are best. Fit to the search of
    the module docstring."""
    learning_time: float = 7100.0
    """Rounds times step size at that noise. Fit to the same search."""
    rounds: float = 40.0
    """Rounds at that noise. Fit to the same search."""
    clip: float = 0.33
    """Clip of a gradient at that noise; a gradient of a whitened row has norm at most sqrt(2) sqrt(1 + bias^2). Fit to
    the same search."""
    time_exponent: float = 0.68
    """Exponent of `reference_noise`/noise in the learning time. Fit to the same search, over a factor of thirty in the
    noise."""
    rounds_exponent: float = 0.2
    """The same exponent of the number of rounds. Fit to the same search."""
    clip_exponent: float = 0.14
    """The same exponent of the clip. Fit to the same search."""
    directions: float = 400.0
    """Number of whitened directions in that search. The number of that search, chosen by hand."""
    directions_exponent: float = 0.5
    """Exponent of the number of directions in the learning time: between 1, which keeps the number of time constants,
    and 0, which keeps the noise of the predictor. Chosen by hand on made-up tables."""
    rate_most: float = 2.0
    """Longest step over the number of directions. Gradient descent diverges above 4 if all directions have equal mean
    squares; they differ by a small factor. Chosen by hand."""
    rounds_limits: tuple[int, int] = (5, 200)
    """Fewest and most rounds. Chosen by hand: beyond the range of the search."""
    time_most: float = 1e6
    """Longest learning time. Chosen by hand, as a limit on the arithmetic where there is no noise."""
    clip_most: float = 1.0
    """Largest clip that the planner chooses. Chosen by hand; no benchmark recorded."""
    whitener_ridge: float = 0.2
    """Ridge of the whitener, over the spectral norm of the noise of the second moment. Chosen by hand; no benchmark
    recorded."""
    average_memory: float = 0.85
    """Factor of the exponential average of the weights over rounds: about the last 1/(1 - 0.85) = 7 rounds count.
    Chosen by hand; no benchmark recorded."""

    # ---- network: steps and learning rate ------------------------------------------------------------------------

    path_length: float = 0.4
    """Path length of the weights in clips, times the noise of a mean of sensitivity 1 for the whole budget, at
    `path_weights` weights. From the simulations of the module docstring."""
    path_weights: float = 1000.0
    """Number of weights at which the path has that length. From the same simulations."""
    path_exponent: float = 0.25
    """Exponent of `path_weights`/weights in the path length. From the same simulations."""
    step_most: float = 5.0
    """Longest step in clips, if the gradients of all units agree. From the same simulations."""
    steps_limits: tuple[int, int] = (30, 300)
    """Fewest and most steps of full batches. From the same simulations."""
    epochs_least: float = 10.0
    """Least expected passes over the data of sampled training. Chosen by hand; no benchmark recorded."""
    gradient_clip: float = 1.0
    """Clip of a unit's gradient. The learning rate is in units of 1/clip, so that the value matters little. Chosen by
    hand; no benchmark recorded."""
    momentum: float = 0.9
    """Default momentum of "SGD". The usual value; chosen by hand."""
    averaging: float = 0.5
    """Default share of the steps, the last ones, whose weights are averaged. Chosen by hand; no benchmark recorded."""
    adaptive_rate: float = 0.002
    """Learning rate of optimisers other than "SGD", which divide by the size of the gradients: about the change of a
    weight in one step. Chosen by hand; no benchmark recorded."""
    weight_most: float = 1e6
    """Largest absolute weight of classifiers and networks. Chosen by hand: the limit that statistics accept
    (`zerosum.statistics.network`)."""

    # ---- models: inputs of the two-layer network -----------------------------------------------------------------

    input_norm: float = 2.0
    """Typical norm of an input after scaling. Chosen by hand; no benchmark recorded."""
    input_radius: float = 1.5
    """Norm at which inputs are clipped, over `input_norm`. Chosen by hand; no benchmark recorded."""
    uniform_spread: float = math.sqrt(1 / 3)
    """Scale of a feature of which only the range is known, in half ranges: the standard deviation of a value that is
    uniform in [-1, 1]. Same value as for regressions."""


TUNING = Tuning()
