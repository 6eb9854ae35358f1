"""Statistics of regressions, small: what tests/helpers/statistic_cases.py has of them."""

from __future__ import annotations

from typing import Any

REGRESSIONS: list[tuple[str, dict[str, Any]]] = [
    ("column_moments", {"columns": 2, "lower": [0, -3], "upper": [1, 5]}),
    ("column_moments", {"columns": 3, "count": True}),
    ("residual_gradient", {"columns": 3, "clip": 1.5, "coefficients": [0.5, -1, 0.2], "bound": 0.3}),
    ("residual_gradient", {"columns": 3, "clip": 0.7, "coefficients": [0, 0], "intercept": 0, "count": True}),
    ("residual_gradient", {"columns": 3, "clip": 2.0, "coefficients": [0, 40, 0], "family": "logistic"}),
    (
        "residual_gradient",
        {"columns": 3, "clip": 2.0, "coefficients": [1, 0.5, 0], "family": "poisson", "most": 9.0, "bound": 2.0},
    ),
    ("residual_moment", {"columns": 3, "clip": 1.5, "coefficients": [0.1, 0.4, 0.2], "bound": 0.5}),
    (
        "residual_moment",
        {"columns": 4, "clip": 1.5, "coefficients": [0, 0, 0], "intercept": 0, "bound": 0.4, "response_weight": 0.6},
    ),
    ("newton_step", {"columns": 3, "clip": 1.8, "coefficients": [0, 40, 0]}),
    (
        "newton_step",
        {"columns": 3, "clip": 1.0, "coefficients": [1, 300], "intercept": 0, "curvature": 0.8, "count": True},
    ),
    (
        "newton_step",
        {
            "columns": 3,
            "clip": 1.5,
            "coefficients": [4, 1, 0],
            "family": "poisson",
            "curvature": 0.9,
            "bound": 2.0,
            "most": 20.0,
            "rate_bound": 3.0,
        },
    ),
    # Weights for long rows. The bound is attained by rows within the clip, which keep their whole weight.
    ("newton_step", {"columns": 3, "clip": 1.0, "coefficients": [0, 300], "intercept": 0, "weighed": True}),
    (
        "newton_step",
        {"columns": 3, "clip": 1.0, "coefficients": [1, 300], "intercept": 0, "weighed": True, "count": True},
    ),
    # Ranges within the clip and no constant: the bound is attained by opposite rows that keep their whole weight.
    (
        "count_step",
        {
            "columns": 3,
            "clip": 1.4143,
            "coefficients": [2.2, 0.5],
            "intercept": 0,
            "curvature": 1.2,
            "bound": 2.0,
            "most": 20.0,
            "rate_bound": 3.0,
            "lower": [-1, -1, 0],
            "upper": [1, 1, 20],
        },
    ),
    (
        "count_step",
        {
            "columns": 4,
            "clip": 1.4143,
            "coefficients": [2.2, 0.5],
            "intercept": 0,
            "bound": 2.0,
            "most": 20.0,
            "rate_bound": 3.0,
            "offset": [-0.1, 0.1],
            "count": True,
            "lower": [-1, -1, 0, 0],
            "upper": [1, 1, 4, 20],
        },
    ),
    # Most residuals are clipped, where the count stands for the rate in h.
    (
        "count_step",
        {
            "columns": 3,
            "clip": 1.0,
            "coefficients": [0.2, 0.1],
            "intercept": 0,
            "curvature": 1.2,
            "bound": 0.3,
            "most": 20.0,
            "rate_bound": 1.5,
        },
    ),
    # a negative binomial
    (
        "count_step",
        {
            "columns": 3,
            "clip": 1.0,
            "coefficients": [0, 20],
            "intercept": 0,
            "curvature": 1.2,
            "bound": 2.0,
            "most": 20.0,
            "rate_bound": 1.5,
            "shape": 0.5,
        },
    ),
    # with an offset, a weight, a draw
    (
        "residual_gradient",
        {"columns": 5, "clip": 1.5, "coefficients": [0.5, -1, 0.2], "bound": 0.3, "offset": [-2, 3], "weighted": True},
    ),
    (
        "residual_gradient",
        {"columns": 4, "clip": 0.7, "coefficients": [1, 2], "kept": [0.3, 2], "weighted": True, "intercept": 0.5},
    ),
    (
        "residual_moment",
        {
            "columns": 5,
            "clip": 1.0,
            "coefficients": [0.1, 0.4],
            "bound": 0.5,
            "offset": [-9, 9],
            "intercept": 0,
            "lower": [0, -3, 0, 0, -1],
            "upper": [1, 5, 4, 1, 1],
            "weighted": True,
        },
    ),
    (
        "newton_step",
        {"columns": 5, "clip": 1.0, "coefficients": [1, 40], "intercept": 0, "offset": [-1, 2], "kept": [0.2, 2]},
    ),
    (
        "newton_step",
        {
            "columns": 5,
            "clip": 1.5,
            "coefficients": [4, 1, 0],
            "family": "poisson",
            "curvature": 0.9,
            "bound": 2.0,
            "most": 20.0,
            "rate_bound": 3.0,
            "offset": [-3, 4],
            "weighted": True,
        },
    ),
    (
        "fit_histogram",
        {
            "columns": 5,
            "clip": 1.0,
            "coefficients": [0.5, -1, 0.3],
            "edges": [-1, 0, 1],
            "family": "logistic",
            "offset": [-1, 1],
            "kept": [0, 0.6],
        },
    ),
    (
        "polynomial_coefficients",  # mostly a constant: no two whole rows are as far apart as one is from nothing
        {
            "columns": 4,
            "clip": 1.3,
            "table": [[1.0, 0.1], [0.1, 0.0], [0.2, 0.0]],
            "weights": [1, 1, 1],
            "weighted": True,
        },
    ),
    (
        "polynomial_coefficients",
        {
            "columns": 4,
            "clip": 1.3,
            "table": [[0, 0, 1], [0, -2, 0], [1, 0, 0]],
            "weights": [0.3, 1, 0.7],
            "kept": [0.2, 2],
        },
    ),
    (
        "polynomial_coefficients",
        {"columns": 3, "clip": 1.3, "table": [[0, 0, 1], [0, -2, 0], [1, 0, 0]], "weights": [0.3, 1, 0.7]},
    ),
    (
        "polynomial_coefficients",
        {
            "columns": 3,
            "clip": 0.9,
            "intercept": 0,
            "table": [[0.7, 0], [0, -0.5], [0.1, 0.1], [0.2, -0.1]],
            "weights": [0, 1, 1.5, 2],
        },
    ),
]
