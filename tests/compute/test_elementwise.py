"""Elementwise linear equations and arctanh: accurate, and the same for a unit among any others."""

from __future__ import annotations

import array_api_strict
import numpy as np

from zerosum.compute.backends.elementwise import arctanh, solved


def test_solved_agrees_with_numpy_for_positive_definite_matrices() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 30, 8))
    matrix, right = rows.transpose(0, 2, 1) @ rows, rng.normal(size=(5, 8, 3))
    np.testing.assert_allclose(solved(matrix, right), np.linalg.solve(matrix, right), rtol=1e-9)


def test_solved_unit_is_the_same_among_others_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(64, 20, 7))
    matrix, right = rows.transpose(0, 2, 1) @ rows, rng.normal(size=(64, 7, 9))
    for at in (0, 17, 63):
        np.testing.assert_array_equal(solved(matrix, right)[at], solved(matrix[at : at + 1], right[at : at + 1])[0])


def test_solved_singular_matrix_raises_nothing() -> None:
    assert solved(np.zeros((1, 2, 2)), np.ones((1, 2, 1))).shape == (1, 2, 1)


def test_elementwise_functions_take_any_array_namespace() -> None:
    x = array_api_strict.asarray(np.linspace(-0.96, 0.96, 11))
    np.testing.assert_allclose(np.asarray(arctanh(x)), np.arctanh(np.linspace(-0.96, 0.96, 11)), atol=1e-13)
    matrix = array_api_strict.asarray(np.eye(2)[None])
    assert np.asarray(solved(matrix, matrix)).tolist() == np.eye(2)[None].tolist()
