"""Every built-in statistic with several sets of parameters: what tests of sensitivity and of coupling go through.

A statistic that is registered without a case here fails `test_sensitivity_cases_have_every_builtin_statistic`.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.regression_cases import REGRESSIONS
from zerosum.compute.statistic import BoundedStatistic
from zerosum.statistics.module_gradients import Architecture
from zerosum.statistics.network import TwoLayer

Case = tuple[str, dict[str, Any]]

_PLAIN = {"kind": "linear", "lower": [-1.0, -1.0], "upper": [1.0, 1.0]}
_WAVES = {"kind": "random", "lower": [0.0, -3.0], "upper": [1.0, 5.0], "waves": 4, "bandwidth": 0.3}
_SOFTMAX: dict[str, Any] = {
    "columns": 3,
    "features": _PLAIN,
    "classes": 2,
    "center": [0.1, 0.0],
    "projection": [[1.0, 0.3], [-0.2, 2.0]],
    "weights": [[0.5, -0.5], [1.0, 0.0], [0.3, 0.0]],
}
_RECORDS: dict[str, Any] = {
    "columns": 3,
    "features": _PLAIN,
    "classes": 2,
    "center": [0.1, 0.0],
    "projection": [[1.0, 0.3], [-0.2, 2.0]],
}
_SOFTMAX_OF_WAVES: dict[str, Any] = {
    "columns": 3,
    "features": _WAVES,
    "classes": 3,
    "center": np.zeros(6),
    "projection": np.eye(6)[:, :5],
    "weights": np.linspace(-1, 1, 18).reshape(6, 3),
}


def _weights(columns: int, hidden: int, classes: int) -> NDArray[np.float64]:
    return TwoLayer.start(columns - 1, hidden, classes, seed=2)


_COX: dict[str, Any] = {"columns": 3, "lower": [-3.0], "upper": [5.0], "edges": [0, 0.5, 1, 2]}
# Short rows have second moments that are small beside the score, and the events that a row of length 1 expects may
# cancel that of an event.
_COX_STEP: dict[str, Any] = {
    **{"columns": 3, "lower": [-1.0], "upper": [1.0], "edges": [0, 3, 6, 100]},
    "coefficients": [0.1],
    "hazards": [[0, 0.5, 1, 12]],
    "parts": [2, 3],
    "matrix": [[1.0]],
    "shift": [0.01],
    "part_weight": 0.02,
    "stratum_weight": 0.02,
    "curvature": 2.0,
}

SMALL: list[Case] = [
    ("feature_moments", {"columns": 3, "features": _PLAIN}),
    ("feature_moments", {"columns": 3, "features": _PLAIN, "part": "held-out", "hold_out": 0.9, "count": True}),
    ("softmax_gradient", {**_SOFTMAX, "clip": 0.4}),
    ("softmax_gradient", {**_SOFTMAX, "clip": 0.5, "part": "fitted", "hold_out": 0.3}),
    ("softmax_gradient", {**_SOFTMAX_OF_WAVES, "clip": 0.3}),
    ("softmax_predictions", {**_SOFTMAX, "bins": 3}),
    ("softmax_predictions", {**_SOFTMAX_OF_WAVES, "bins": 2, "part": "held-out", "hold_out": 0.5}),
    ("vector_sum", {"columns": 3, "clip": 1.7}),
    ("vector_sum", {"columns": 3, "clip": 0.4, "count": True}),
    ("vector_sum", {"columns": 2, "clip": math.sqrt(2), "lower": [0, -3], "upper": [1, 5]}),
    ("vector_sum", {"columns": 3, "clip": 1.7, "fill": [0.5, None, -30.0], "own_rows": [0]}),
    ("observed_sums", {"columns": 1, "clip": 0.7, "count_weight": math.sqrt(3)}),
    ("observed_sums", {"columns": 3, "clip": 1.3, "count_weight": math.sqrt(2)}),
    ("observed_sums", {"columns": 2, "clip": 9.0, "lower": [0, -3], "upper": [1, 5], "count_weight": math.sqrt(3)}),
    ("observed_sums", {"columns": 3, "clip": 1.2, "lower": [0, -3, 1], "upper": [1, 5, 2], "count_weight": 1.4}),
    ("observed_sums", {"columns": 3, "clip": 2.0, "fill": [None, None, 0.3], "own_rows": [2], "count_weight": 0.4}),
    ("clipped_records", {"columns": 3, "clip": 1.7}),
    ("clipped_records", {"columns": 2, "clip": 0.9, "lower": [0, -3], "upper": [1, 5]}),
    ("labelled_records", {**_RECORDS, "label_weight": 0.7}),
    ("labelled_records", {**_RECORDS, "features": _WAVES, "center": np.zeros(6), "projection": np.eye(6)[:, 1:4]}),
    (
        "fit_histogram",
        {"columns": 3, "clip": 1.0, "coefficients": [0.5, -1, 0.2], "edges": [-1, 0, 1], "family": "logistic"},
    ),
    ("fit_histogram", {"columns": 2, "clip": 0.7, "coefficients": [0.5, 0.2], "edges": [-0.5, 0, 0.5], "bound": 0.3}),
    # Steep coefficients: both rows are beside the boundary of two classes that are not the reference. The clip is the
    # norm of a row of the intercept alone, so that neither is long.
    (
        "multinomial_step",
        {
            **{"columns": 2, "clip": 1.0, "classes": 3, "lower": [-30, 0], "upper": [30, 2]},
            **{"coefficients": [[90.0, 60.0], [-90.0, 60.0]], "curvature": 1.4},
        },
    ),
    (
        "multinomial_step",
        {
            **{"columns": 2, "clip": 2.0, "classes": 3, "lower": [-40, 0], "upper": [40, 2], "intercept": 2.0},
            **{"coefficients": [[200.0, 40.0], [-200.0, 40.0]], "count": True, "curvature": 1.0},
        },
    ),
    ("histogram", {"bins": 4}),
    ("histogram", {"bins": 3, "edges": [-1, 0, 0.5, 2]}),
    ("histogram", {"bins": 3, "edges": [-1, 0, 0.5, 2], "fill": [0.2]}),
    ("second_moment", {"columns": 3, "clip": 1.0}),
    ("second_moment", {"columns": 3, "clip": 1.3, "mean_weight": 0.6}),
    ("second_moment", {"columns": 2, "clip": 0.7, "mean_weight": 0.7, "count": True}),
    ("second_moment", {"columns": 3, "clip": 1.3, "mean_weight": 0.6, "fill": [0.1, 0.2, 4.0], "own_rows": [1, 2]}),
    (
        "rank_moment",
        {
            **{"columns": 2, "clip": 1.0, "mean_weight": 0.5, "lower": [-1, 0], "upper": [1, 2]},
            "heights": [[-1, -0.4, 0, 1], [-1, 0.2, 0.2, 1]],
        },
    ),
    (
        "rank_moment",
        {
            **{"columns": 2, "clip": 1.2, "mean_weight": 0.7, "count": True, "lower": [-1, 0], "upper": [1, 2]},
            **{"heights": [[-1, 1], [-1, 1]], "fill": [0.5, None]},
        },
    ),
    ("cluster_sums", {"columns": 2, "clip": 0.6, "centers": [[0, 0.3], [0.2, -0.2], [-0.3, 0]]}),
    ("cluster_sums", {"columns": 2, "clip": 3.0, "centers": [[0, 1], [1, -1]]}),
    ("scatter", {"columns": 3, "clip": 1.0, "center": [0.1, 0, 0.2]}),
    ("scatter", {"columns": 3, "center": [0.1, 0, 0.2], "fill": [0.1, 0.2, 4.0], "own_rows": [1, 2]}),
    ("scatter", {"columns": 3, "clip": 0.8, "normalise": False, "scale": [1, 2, 3]}),
    ("scatter", {"columns": 3, "center": [0.1, 0, 0.2], "lift": 0.5}),
    ("scatter", {"columns": 2, "clip": 0.8, "normalise": False, "lift": 0.3}),
    ("rounded_scatter", {"columns": 3, "center": [0.1, 0, 0.2], "lift": 0.5}),
    ("rounded_scatter", {"columns": 3, "clip": 0.8, "normalise": False, "scale": [1, 2, 3]}),
    ("rounded_scatter", {"columns": 3, "projection": [[2, 0], [1, 1], [0, 5]], "fill": [0.1, 0.2, 4.0]}),
    ("scatter_product", {"columns": 3, "basis": np.eye(3)[:, :2]}),
    ("scatter_product", {"columns": 3, "basis": np.eye(3)[:, :1]}),
    ("scatter_column", {"columns": 2, "lift": 0.7}),
    ("scatter_column", {"columns": 3, "clip": 0.9, "normalise": False}),
    ("scatter_product", {"columns": 2, "basis": np.eye(3)[:, 1:], "clip": 0.9, "normalise": False, "lift": 0.7}),
    ("scatter_product", {"columns": 3, "basis": np.eye(3)[:, :2], "clip": 7.0, "normalise": False}),
    ("scatter_norms", {"columns": 3, "lowest": 0.01, "highest": 100.0, "bins": 5, "center": [0.1, 0, 0.2]}),
    ("scatter_norms", {"columns": 2, "lowest": 0.1, "highest": 3.0, "bins": 2, "per_recording": "standardise"}),
    ("scatter", {"columns": 3, "projection": [[2, 0], [1, 1], [0, 5]], "per_recording": "center"}),
    ("unmixing_score", {"columns": 3, "unmixing": [[1, 0, 2], [0, 1, 1]], "slope_weight": 0.01, "constant": 0.01}),
    (
        "unmixing_score",
        {
            "columns": 2,
            "unmixing": np.eye(2),
            "scores": ["volatility", "cube"],
            "signs": [1, -1],
            "window": 1,
            "slope_weight": 0.01,
            "constant": 0.001,
        },
    ),
    ("fourth_cumulants", {"columns": 3, "unmixing": [[1, 0, 2], [0, 1, 1]], "memory": 0.0}),
    ("fourth_cumulants", {"columns": 2, "unmixing": np.eye(2), "window": 3, "per_recording": "center"}),
    (
        "band_scatter",
        {"columns": 3, "projection": np.eye(3)[:, :2], "edges": [0, 0.2, 0.6], "seconds": 1, "per_recording": "none"},
    ),
    *REGRESSIONS,
    ("augmented_scatter", {"columns": 3, "clip": 0.8, "center": [0.1, 0, 0.2]}),
    ("augmented_scatter", {"columns": 3, "clip": 2.0, "constant": 0.8, "count": True, "scale": [1, 2, 3]}),
    ("third_moment", {"columns": 3, "clip": 2.0, "projection": [[2, 0], [1, 1], [0, 5]], "correction": [0.3, 0.1]}),
    (
        "third_moment",
        {"columns": 2, "clip": 0.7, "projection": np.eye(2), "correction": [0, 4], "constant": 1, "center": [1, 0]},
    ),
    (
        "mixture_sums",
        {
            "columns": 2,
            "clip": 0.6,
            "means": [[0, 1], [2, 0], [0, 0]],
            "variances": [1, 0.1, 0.4],
            "radii": [1, 0.5, 2],
            "weights": [1, 2, 3],
        },
    ),
    (
        "mixture_sums",
        {
            "columns": 3,
            "clip": 2.0,
            "means": [[0, 1, 0], [1, -1, 0]],
            "variances": [0.5, 0.5],
            "radii": [1, 1],
            "weights": [0.3, 0.7],
            "basis": np.eye(3)[:, :2],
            "projected": True,
        },
    ),
    ("two_layer_gradient", {"columns": 3, "hidden": 2, "clip": 0.05, "radius": 2.0, "weights": _weights(3, 2, 2)}),
    (
        "two_layer_gradient",
        {
            **{"columns": 3, "hidden": 2, "clip": 0.05, "weights": _weights(3, 2, 2)},
            **{"part": "fitted", "hold_out": 0.3},
        },
    ),
    (
        "tensor_clipped_gradient",
        {"columns": 3, "hidden": 2, "clip": 0.02, "radius": 2.0, "weights": _weights(3, 2, 2)},
    ),
    (
        "tensor_clipped_gradient",
        {
            **{"columns": 3, "hidden": 3, "clip": 0.02, "radius": 2.0, "weights": _weights(3, 3, 2)},
            **{"part": "fitted", "hold_out": 0.3},
        },
    ),
    ("local_training", {"columns": 3, "clip": 0.001, "epochs": 1, "weights": np.zeros(6), "largest_site": 1}),
    (
        "local_training",
        {
            **{"columns": 2, "clip": 0.5, "hidden": (3,), "weights": np.zeros(14), "step": 1.0},
            **{"largest_site": 1, "lower": [-1, 0], "upper": [3, 1], "part": "fitted", "hold_out": 0.3},
        },
    ),
    (
        "two_layer_predictions",
        {"columns": 3, "hidden": 4, "clip": 1.0, "radius": 9.0, "weights": 3 * _weights(3, 4, 2)},
    ),
    (
        "two_layer_gradient",
        {
            "columns": 3,
            "hidden": 3,
            "clip": 0.1,
            "classes": 3,
            "weights": _weights(3, 3, 3),
            "lower": [-2, -1, 0],
            "upper": [2, 3, 2],
            "center": [0.1, 0],
            "scale": [1.0, 0.5],
        },
    ),
    ("word_presence", {"columns": 3}),
    ("word_presence", {"columns": 4, "words": [3, 0]}),
    ("word_pairs", {"columns": 3, "weights": [1, 0, 2]}),
    ("word_pairs", {"columns": 4, "words": [3, 0, 1], "weights": [1, 5, 2]}),
    ("topic_sums", {"columns": 3, "scores": [[9, 0], [0, 9], [1, 1]], "offsets": [0, 0.5], "weights": [1, 1, 2]}),
    ("topic_sums", {"columns": 3, "scores": [[-1, -3], [-3, -1], [-1, -2]], "offsets": [0, 0.5], "kind": "shares"}),
    (
        "topic_sums",
        {"columns": 4, "words": [0, 2, 3], "scores": -np.eye(3), "offsets": [0, 0, 0], "kind": "shares", "clip": 0.6},
    ),
    ("pair_norms", {"columns": 3, "bins": 4, "lowest": 0.3}),
    ("pair_moment", {"columns": 3}),
    ("pair_moment", {"columns": 4, "words": [0, 1, 3], "clip": 0.5}),
    ("triple_moment", {"columns": 3}),
    ("triple_moment", {"columns": 4, "clip": 0.3, "basis": np.eye(4)[:, :2]}),
    ("grouped_moments", {"columns": 2, "positions": [1], "lower": [-1], "upper": [3]}),
    (
        "grouped_moments",
        {"columns": 1, "positions": [0], "lower": [0], "upper": [1], "count_weight": 1.5, "second_weight": 0.83},
    ),
    (
        "grouped_moments",
        {"columns": 3, "positions": [2, 0], "group": 1, "groups": 3, "lower": [0, -2], "upper": [1, 5]},
    ),
    (
        "grouped_moments",
        {
            **{"columns": 3, "positions": [2, 0], "group": 1, "groups": 2, "lower": [0, -2], "upper": [1, 5]},
            **{"count_weight": 2.0, "second_weight": 0.1, "fill": [0.5, 1.0, None]},
        },
    ),
    ("grouped_counts", {"columns": 2, "positions": [1, 0], "levels": [3, 2]}),
    ("grouped_counts", {"columns": 2, "positions": [0], "levels": [1], "group": 0}),
    ("grouped_counts", {"columns": 3, "positions": [1, 0, 2], "levels": [1, 3, 2], "group": 1, "groups": 2}),
    ("grouped_counts", {"columns": 2, "positions": [0], "levels": [4], "fill": [2.0, None]}),
    ("grouped_ranks", {"columns": 2, "positions": [1, 0], "edges": [[-1, 0, 0.5, 2], np.linspace(-2, 1, 20)]}),
    ("grouped_ranks", {"columns": 1, "positions": [0], "edges": [[0, 1]]}),
    (
        "grouped_ranks",
        {"columns": 3, "positions": [1, 0], "group": 2, "groups": 3, "edges": [[-1, 0, 0.5, 2], [0, 1, 2]]},
    ),
    (
        "weighted_tables",
        {
            **{"columns": 2, "levels": [2, 0], "edges": [[], [-1, 0, 1]], "cells": 20, "of": [0, 1, 1]},
            **{"bins": [[0, 1, 2], [0, 1, 2], [1, 0, 0]], "tables": [[0], [1], [0, 2]], "weights": [0.6, 0.64, 0.48]},
        },
    ),
    (
        "weighted_tables",
        {
            **{"columns": 3, "levels": [0, 0, 3], "edges": [[-1, 0, 1], [0, 1], []], "cells": 18, "of": [2, 0, 1]},
            **{"bins": [[0, 1, 2, 2], [0, 1, 1], [0, 1]], "tables": [[0, 1, 2]], "weights": [1.0]},
        },
    ),
    # 40 bins each: with few bins the bound for an added unit is loose (test_marginals.py has every pair of rows)
    (
        "centred_pairs",
        {
            **{"columns": 2, "levels": [0, 0], "edges": [np.linspace(-2, 2, 40), np.linspace(-9, 9, 40)]},
            **{"cells": 1700, "bins": [list(range(40)), list(range(40))]},
        },
    ),
    ("dual_regression", {"columns": 2, "templates": [[1.0, 0.5]], "clip": 0.7}),
    (
        "dual_regression",
        {
            **{"columns": 3, "templates": [[1.0, 0, 0]], "directions": [[0, 0], [1.0, 0], [0, 1.0]], "clip": 1.5},
            **{"center": [[0.2, -0.1]], "weights": [[1.0, 0.3]]},
        },
    ),
    ("dual_regression", {"columns": 3, "templates": [[1.0, 0, 0.3], [0, 2.0, 0]], "clip": 0.4}),
    ("grouped_connectivity", {"columns": 2, "regions": 2, "clip": 0.9, "center": [0.3]}),
    ("grouped_connectivity", {"columns": 3, "regions": 2, "clip": 0.7, "group": 2, "groups": 2}),
    (
        "grouped_connectivity",
        {
            **{"columns": 3, "regions": 3, "clip": 0.5, "ridge": 0.1, "basis": [[0.6], [0.8], [0.0]]},
            **{"projection": [[1.0, 0, 0], [0.5, 1.0, 0], [0, 0.2, 2.0]]},
        },
    ),
    *(
        (
            "site_centred_connectivity",
            {
                **{"columns": 3, "regions": 2, "clip": 0.9, "covariates": [2], "lower": [-1.0], "upper": [1.0]},
                "part": part,
            },
        )
        for part in ("edges", "covariates", "energy")
    ),
    (
        "response_tables",
        {
            **{"columns": 3, "levels": [2, 0, 0], "edges": [[], [-1, 0, 1], [-1, 2]], "cells": 20, "of": [0, 1]},
            **{"bins": [[0, 1, 2], [0, 1, 1]], "terms": [[0], [1]]},
        },
    ),
    (
        "response_tables",
        {
            **{"columns": 2, "levels": [0, 2], "edges": [[-1, 0, 1], []], "cells": 12, "of": [0]},
            **{"bins": [[0, 1, 2]], "terms": [[0]]},
        },
    ),
    (
        "model_tables",
        {
            **{"columns": 3, "levels": [2, 0, 0], "edges": [[], [-1, 0, 1], [-1, 2]], "cells": 12, "of": [0, 1]},
            **{"bins": [[0, 1, 2], [0, 1, 2]], "terms": [[0], [1]], "family": "linear", "intercept": 0.0},
            **{"effects": [-0.5, 0.5, 0.0, 0.0, 0.0, 0.0]},
        },
    ),
    (
        "model_tables",
        {
            **{"columns": 3, "levels": [2, 0, 0], "edges": [[], [-1, 0, 1], [-1, 2]], "cells": 20, "of": [0, 1, 1]},
            # the pair has coarser bins, so that one term alone may differ
            **{"bins": [[0, 1, 2], [0, 1, 2], [0, 0, 1]], "terms": [[0], [1], [0, 2]], "family": "logistic"},
            **{"intercept": 0.5, "effects": [-2.0, 1.0, 2.0, -9.0, 9.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]},
        },
    ),
    (
        "score_products",
        {
            **{"columns": 3, "levels": [2, 0, 0], "edges": [[], [-1, 0, 1], [-1, 2]], "cells": 1, "of": [0, 1]},
            **{"bins": [[0, 1, 2], [0, 1, 2]], "terms": [[0], [1]], "scores": [-1.0, 1.0, 0.5, 1.0, 1.0, -1.0]},
        },
    ),
    (
        "score_products",
        {
            **{"columns": 4, "levels": [2, 0, 3, 0], "edges": [[], [-1, 0, 1], [], [-1, 2]], "cells": 5},
            **{"of": [0, 1, 2], "bins": [[0, 1, 2], [0, 1, 2], [0, 1, 2, 2]], "terms": [[0], [1], [2]]},
            **{"scores": [-1.0, 1.0, 0.5, 1.0, 1.0, -1.0, 0.2, 1.0, -1.0]},
        },
    ),
    ("distinct_second_moment", {"columns": 2, "clip": 0.7}),
    ("distinct_second_moment", {"columns": 3, "clip": 0.9, "lower": [-1, 0, -2], "upper": [1, 2, 3]}),
    ("distinct_third_moment", {"columns": 2, "clip": 0.7, "variance": 0.02}),
    ("distinct_third_moment", {"columns": 1, "clip": 1.3, "variance": 0.5}),
    (
        "distinct_third_moment",
        {"columns": 3, "clip": 0.9, "variance": 0.4, "lower": [-1, 0, -2], "upper": [1, 2, 3]},
    ),
    ("distinct_pair_moment", {"columns": 3}),
    ("distinct_pair_moment", {"columns": 4, "words": [0, 1, 3], "clip": 0.5}),
    ("distinct_triple_moment", {"columns": 3}),
    ("distinct_triple_moment", {"columns": 4, "words": [0, 1, 3], "clip": 0.3}),
    ("infomax_gradient", {"columns": 2, "unmixing": np.eye(2), "bias": np.zeros(2), "clip": 1.0}),
    (
        "infomax_gradient",
        {
            "columns": 3,
            "unmixing": [[1.0, -0.4], [0.3, 2.0]],
            "bias": [0.2, -0.1],
            "projection": [[0.6, 0.0], [0.8, 0.0], [0.0, 1.0]],
            "clip": 3.0,
        },
    ),
    ("survival_table", {"columns": 2, "edges": [0, 0.5, 1, 2]}),
    ("covariate_moments", _COX),
    ("exit_table", _COX),
    ("score_table", {**_COX, "coefficients": [1.0], "cuts": [-0.5, 0.5]}),
    ("score_table", {**_COX, "coefficients": [1.0], "cuts": [0.0], "part": "held-out", "hold_out": 0.5}),
    ("cox_step", _COX_STEP),
    ("cox_step", {**_COX_STEP, "matrix": [[3.0]], "curvature": 0.2, "all_rows": True}),
    ("cox_step", {**_COX_STEP, "since": 2.0}),
    ("survival_table", {"columns": 3, "edges": [0, 1], "group": 2, "groups": 2, "fill": [0.5, None, None]}),
]


def _modules() -> list[Case]:
    """Of PyTorch, where it is installed (make test-torch): linear layers in both precisions, and a convolution."""
    if find_spec("torch") is None:
        return []
    found: list[Case] = []
    for precision in ("float32", "float64"):
        settings = {"features": 2, "classes": 2, "hidden": 8}
        architecture = Architecture.of("perceptron", settings, (2,), 2, precision)
        common = {"module": "perceptron", "settings": settings, "shape": [2], "precision": precision}
        weights = 3 * architecture.start(0)
        found.append(("module_gradient", {"columns": 3, "clip": 0.05, "batch": 16, "weights": weights, **common}))
        found.append(("module_predictions", {"columns": 3, "clip": 1.0, "batch": 16, "weights": weights, **common}))
    return found


SMALL += _modules()


def _wide() -> list[Case]:
    """As wide as what BLAS has other kernels for, with bases that make rows cancel."""
    rng = np.random.default_rng(0)
    D = 50
    turned = np.linalg.qr(rng.normal(size=(D, D)))[0]
    damped = (turned / np.geomspace(1000, 1, D)) @ turned.T
    near = rng.normal(size=(1, D)) / 8
    twins = np.vstack([near, np.nextafter(near, 1), rng.normal(size=(2, D)) / 8])
    tall = np.linalg.qr(rng.normal(size=(80, 80)))[0][:, :50]
    bounds = {"lower": -np.ones(D), "upper": np.linspace(1, 2, D)}
    return [
        ("vector_sum", {"columns": D, "clip": 1.0, **bounds}),
        ("observed_sums", {"columns": D, "clip": 1.0, "count_weight": math.sqrt(2), **bounds}),
        ("observed_sums", {"columns": D, "clip": 30.0, "count_weight": math.sqrt(3), **bounds}),
        ("clipped_records", {"columns": D, "clip": 1.0, **bounds}),
        (
            "labelled_records",
            {
                "columns": D + 1,
                "features": {"kind": "linear", **bounds},
                "classes": 3,
                "center": near[0],
                "projection": turned[:, :20],
            },
        ),
        ("second_moment", {"columns": D, "clip": 1.0, "mean_weight": 0.5}),
        ("cluster_sums", {"columns": D, "clip": 1.0, "centers": rng.normal(size=(7, D)) / 8}),
        ("cluster_sums", {"columns": D, "clip": 2.0, "centers": twins, **bounds}),
        ("cluster_sums", {"columns": D, "clip": 1.0, "centers": np.tile(near, (3, 1))}),
        ("cluster_sums", {"columns": D, "clip": 1.0, "centers": rng.normal(size=(5, D)) / 8}),
        ("scatter", {"columns": D, "projection": turned[:, :20]}),
        ("scatter", {"columns": 80, "projection": tall}),
        ("scatter", {"columns": D, "projection": damped, "clip": 0.3, "normalise": False}),
        ("scatter", {"columns": D, "center": np.full(D, 0.01), "lift": 0.3, "clip": 0.3, "normalise": False}),
        ("scatter_column", {"columns": D, "center": np.full(D, 0.01), "lift": 0.3}),
        ("rounded_scatter", {"columns": D, "center": np.full(D, 0.01), "lift": 0.3, "clip": 0.3, "normalise": False}),
        ("rounded_scatter", {"columns": D, "projection": damped}),
        ("scatter_norms", {"columns": D, "projection": damped, "lowest": 1e-4, "highest": 10.0, "bins": 9}),
        ("scatter_product", {"columns": D, "projection": turned[:, :30], "basis": np.eye(30)[:, :4]}),
        ("unmixing_score", {"columns": D, "unmixing": turned[:, :20].T}),
        ("unmixing_score", {"columns": D, "unmixing": turned[:, :9].T, "scores": ["tanh", "cube", "both"] * 3}),
        ("fourth_cumulants", {"columns": D, "unmixing": turned[:, :12].T}),
        ("fourth_cumulants", {"columns": D, "unmixing": damped[:7], "memory": 0.0}),
        ("column_moments", {"columns": D, **bounds}),
        ("residual_gradient", {"columns": D, "clip": 1.0, "coefficients": turned[0] * 0.3, "bound": 0.2, **bounds}),
        ("residual_gradient", {"columns": D, "clip": 2.0, "coefficients": near[0], "family": "poisson", "bound": 0.5}),
        ("residual_moment", {"columns": D, "clip": 0.8, "coefficients": damped[0], "bound": 0.1}),
        ("score_moment", {"columns": D, "clip": 0.8, "coefficients": damped[0], "bound": 0.1}),
        ("score_norms", {"columns": D, "clip": 0.8, "coefficients": near[0], "edges": np.linspace(0, 3, 40)}),
        ("newton_step", {"columns": D, "clip": 1.0, "coefficients": 5 * near[0], "center": near[0, 1:]}),
        ("newton_step", {"columns": D, "clip": 0.7, "coefficients": near[0], "weighed": True}),
        (
            "multinomial_step",
            {"columns": D, "clip": 0.7, "classes": 3, "coefficients": np.vstack([near, -near]), "curvature": 1.0},
        ),
        ("newton_step", {"columns": D, "clip": 2.0, "coefficients": near[0], "family": "poisson", "bound": 0.5}),
        ("count_step", {"columns": D, "clip": 2.0, "coefficients": near[0], "bound": 0.5}),
        (
            "newton_step",
            {
                "columns": D,
                "clip": 2.0,
                "coefficients": near[0, 3:],
                "family": "poisson",
                "bound": 0.5,
                "offset": [-2, 2],
                "weighted": True,
                "kept": [0.3, 2],
            },
        ),
        (
            "polynomial_coefficients",
            {"columns": 12, "clip": 1.0, "table": [[0], [1], [1], [1]], "weights": [0, 1, 1, 1]},
        ),
        (
            "two_layer_gradient",
            {"columns": D, "hidden": 17, "clip": 0.3, "radius": 3.0, "weights": _weights(D, 17, 2), **bounds},
        ),
        (
            "two_layer_gradient",
            {"columns": D, "hidden": 9, "clip": 0.5, "radius": 3.0, "weights": _weights(D, 9, 4), "classes": 4},
        ),
        (
            "tensor_clipped_gradient",
            {"columns": D, "hidden": 9, "clip": 0.3, "radius": 3.0, "weights": _weights(D, 9, 4), "classes": 4},
        ),
        ("feature_moments", {"columns": D + 1, "features": {"kind": "linear", **bounds}}),
        (
            "softmax_gradient",
            {
                "columns": D + 1,
                "features": {"kind": "random", "waves": 30, **bounds},
                "classes": 7,
                "center": np.append(near[0], np.zeros(30)),
                "projection": tall,
                "weights": rng.normal(size=(51, 7)),
                "clip": 0.5,
            },
        ),
        (
            "softmax_predictions",
            {
                "columns": 65,
                "features": {"kind": "scattering", "height": 8, "width": 8, "lowest": -1.0, "highest": 1.0},
                "classes": 3,
                "center": np.zeros(100),
                "projection": np.linalg.qr(rng.normal(size=(100, 40)))[0],
                "weights": rng.normal(size=(41, 3)),
            },
        ),
        ("band_scatter", {"columns": D, "projection": turned[:, :9], "edges": [0, 0.1, 0.3, 0.6], "seconds": 1.0}),
        ("augmented_scatter", {"columns": D, "clip": 0.5, "center": near[0]}),
        (
            "third_moment",
            {"columns": D, "clip": 3.0, "projection": turned[:, :6], "correction": np.full(6, 0.3), "constant": 1},
        ),
        (
            "mixture_sums",
            {
                "columns": D,
                "clip": 0.7,
                "means": twins,
                "variances": np.full(4, 0.02),
                "radii": np.ones(4),
                "weights": np.ones(4),
            },
        ),
        (
            "mixture_sums",
            {
                "columns": D,
                "clip": 0.7,
                "means": twins,
                "variances": np.full(4, 0.02),
                "radii": [1, 2, 0.3, 0.7],
                "weights": np.ones(4),
                "basis": turned[:, :5],
            },
        ),
        ("word_presence", {"columns": D}),
        ("word_pairs", {"columns": D, "weights": np.linspace(0.5, 2, D)}),
        ("topic_sums", {"columns": D, "scores": 30 * turned[:, :4], "offsets": np.zeros(4)}),
        (
            "topic_sums",
            {"columns": D, "scores": 9 * turned[:, :4], "offsets": np.ones(4), "kind": "shares", "clip": 0.2},
        ),
        ("pair_norms", {"columns": D}),
        ("pair_moment", {"columns": D, "clip": 0.05}),
        ("triple_moment", {"columns": D, "clip": 0.02, "basis": turned[:, :5]}),
        ("distinct_third_moment", {"columns": 40, "clip": 0.3, "variance": 0.002}),
        ("distinct_pair_moment", {"columns": D, "clip": 0.05}),
        ("distinct_triple_moment", {"columns": 40, "clip": 0.02}),
        (
            "grouped_moments",
            {"columns": D + 1, "positions": range(1, D + 1), "group": 0, "groups": 5, **bounds},
        ),
        (
            "grouped_ranks",
            {"columns": 9, "positions": range(8), "group": 8, "groups": 2, "edges": [np.linspace(-1, 1, 130)] * 8},
        ),
        ("grouped_counts", {"columns": 20, "positions": range(20), "levels": [3] * 20, "group": 4, "groups": 3}),
    ]


WIDE = _wide()

# centres whose squares underflow, and that tie for constant rows
TINY = np.random.default_rng(1).permuted(np.tile(1.57e-162 * np.linspace(0.5, 1, 400), (2, 1)), axis=1)

EXTREME: list[Case] = [
    (name, params | {"clip": clip})
    for clip in (1e-100, 2.6e-16, 1e-20, 1e100)
    for name, params in (
        ("cluster_sums", {"columns": 400, "centers": TINY}),
        ("vector_sum", {"columns": 3}),
        ("observed_sums", {"columns": 3}),
        ("vector_sum", {"columns": 1, "count": True, "lower": [0.0], "upper": [1e-90]}),
        ("second_moment", {"columns": 2, "mean_weight": 0.0}),
        ("cluster_sums", {"columns": 2, "centers": [[0, 1e-30], [1e90, -1], [1e-99, 0]]}),
        ("scatter", {"columns": 3, "normalise": False}),
        ("scatter", {"columns": 3, "normalise": False, "lift": 1e-90}),
        ("rounded_scatter", {"columns": 3, "normalise": False, "lift": 1e-90}),
        ("scatter_product", {"columns": 3, "normalise": False, "basis": np.eye(3)[:, :1]}),
        ("residual_gradient", {"columns": 3, "coefficients": [1e90, 1.0, 0.0], "bound": 1e-60}),
        ("residual_moment", {"columns": 3, "coefficients": [1.0, 1e-90], "intercept": 0}),
        ("score_moment", {"columns": 3, "coefficients": [1e90, 1e-99, 3.0], "bound": 1e-60}),
        ("score_norms", {"columns": 3, "coefficients": [1e99, 1e-99, 3.0], "edges": [1e-90, 1, 1e90]}),
        ("newton_step", {"columns": 3, "coefficients": [1e99, 1e-99, 3.0]}),
        ("multinomial_step", {"columns": 3, "classes": 3, "coefficients": [[1e99, 1e-99, 3.0], [1e99, 0, -3.0]]}),
        ("count_step", {"columns": 3, "coefficients": [1e99, 1e-99, 3.0]}),
        ("polynomial_coefficients", {"columns": 2, "table": [[0, 0], [0, 1], [1, 0]], "weights": [0, 1, 1]}),
        ("augmented_scatter", {"columns": 3}),
        ("third_moment", {"columns": 2, "projection": [[1e30], [1e-30]], "correction": [1e9], "constant": 1}),
        (
            "mixture_sums",
            {
                "columns": 2,
                "means": [[1e4, 0], [0, 0]],
                "variances": [1e-8, 1e8],
                "radii": [1e-8, 1e8],
                "weights": [1e-8, 1],
            },
        ),
        ("two_layer_gradient", {"columns": 3, "hidden": 2, "radius": 1e6, "weights": 1e6 * np.ones(9)}),
        ("topic_sums", {"columns": 2, "scores": [[1e6, -1e6]] * 2, "offsets": [1e6, 0], "kind": "shares"}),
        ("pair_moment", {"columns": 2}),
        ("triple_moment", {"columns": 2}),
        ("distinct_third_moment", {"columns": 2, "variance": 0.0}),
    )
]


ONE_ROW = ("rounded_scatter",)  # does something to records that it does not do to people
MANY_ROWS = ("fourth_cumulants", "unmixing_score")
# no sum over units: each entry depends on all rows of a site
WHOLE_SITE = ("local_training", "site_centred_connectivity")


def of_many_rows(stat: BoundedStatistic, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """A unit that takes many rows to be extreme, where the statistic has such units: columns that are the same but for
    their sign, independent signs, zeros but for a few rows."""
    if stat.name not in MANY_ROWS or rng.integers(4) == 0:
        return None
    kind = rng.integers(3)
    if kind == 0:
        return np.asarray(rng.normal(size=(30, 1)) * rng.choice([-1.0, 1.0], stat.columns))
    if kind == 1:
        return np.asarray(rng.choice([-1.0, 1.0], (int(rng.integers(4, 41)), stat.columns)))
    rows = np.zeros((600, stat.columns))
    rows[rng.integers(600, size=stat.columns), np.arange(stat.columns)] = rng.choice([-1.0, 1.0], stat.columns)
    return rows


def with_holes(stat: BoundedStatistic, rows: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """The rows with some values missing, where the statistic says what is done then; codes where it takes codes."""
    if (codes := getattr(stat, "codes", None)) is not None:
        rows = rows.copy()
        for at, known in codes.items():
            rows[:, at] = rng.integers(0, known, len(rows))
        hidden = rng.random(rows.shape) < rng.choice([0.0, 0.0, 0.3, 1.0])
        return np.where(hidden, np.nan, rows)
    if stat.name not in ("observed_sums", "histogram") and not getattr(stat, "fill", ()):
        return rows
    missing = rng.choice([0.0, 0.3, 1.0])  # nothing missing, some, all
    return np.where(rng.random(rows.shape) < missing, np.nan, rows)
