"""The question in public words: what it lists, what it names by a digest, and that changes show."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question, plain


def test_question_of_long_lists_has_digests() -> None:
    short = Question.of(["a", "b"], {"lower": np.zeros(2)})
    assert (short.columns, short.n_columns) == (("a", "b"), 2)
    names = [f"v{i}" for i in range(20_000)]
    basis = np.random.default_rng(0).normal(size=(20_000, 3))
    long = Question.of(names, {"basis": basis})
    assert (long.columns, long.n_columns) == (("v0", "v19999"), 20_000)
    assert len(str(asdict(long))) < 1000
    other = basis.copy()
    other[7, 1] += 1e-12
    assert Question.of(names, {"basis": other}).parameters != long.parameters
    assert Question.of(names[::-1], {"basis": basis}).columns_digest != long.columns_digest


def test_plain_public_values_become_json() -> None:
    assert plain({"a": (1, None, True, "x"), "b": np.array([[1.5]])}) == {"a": [1, None, True, "x"], "b": [[1.5]]}


def test_plan_of_0_1_without_question_is_read() -> None:
    """The text of a plan as 0.1 wrote it: no columns, kinds or samplings of releases, no question."""
    text = (
        b'{"study":"vitals 0011","algorithm":"mean","unit":"person","adjacency":"replace-one","epsilon":1.0,'
        b'"delta":1e-05,"scheme":{"name":"secure-sum","ratio":100.0,"combine":"sums"},"coalition":{"colluders":1,'
        b'"dropouts":0},"sites":[{"name":"a","units":null,"scale":1.0,"weight":null,"identity":null},{"name":"b",'
        b'"units":null,"scale":1.0,"weight":null,"identity":null}],"releases":[{"statistic":"vector_sum",'
        b'"sensitivity":2.0,"share":1.0,"size":2,"bound":1.0}],"results_to_sites":true,"calibration":"exact",'
        b'"seed":null}'
    )
    plan = Plan.from_json(text)
    assert plan.question == Question()
    assert plan.releases[0].columns is None
    assert plan.rounds == 1
    assert plan.site_epsilon(0) < 1.0 + 1e-9
