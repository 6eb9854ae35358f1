"""Topics: exact without noise, near the truth with it, by either path; what the planner chooses, and the audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from zerosum.algorithms import TopicsProgram
from zerosum.algorithms.metrics import component_error
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.topics.factors import (
    correct_em_bias,
    fit_topics,
    nonnegative_factors,
    on_simplex,
    refine_topics,
    topics_from_moments,
)
from zerosum.algorithms.topics.program import documents_behind, independent_sums
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.topics import TopicSums
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
UNITS = 20_000


def names(words: int) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(words))


def made(words: int, topics: int, length: int, seed: int = 0, units: int = UNITS) -> tuple[Floats, Floats]:
    """Topics that a Dirichlet law draws, and documents of one topic each."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(words, 0.3), topics)
    return truth, rng.multinomial(length, truth[rng.integers(topics, size=units)]).astype(float)


def fit(rows: Any, topics: int, epsilon: float, seed: int = 0, **more: Any) -> Any:
    algorithm = TopicsProgram(columns=names(rows.shape[1]), n_components=topics, **more)
    return Rehearsal(algorithm, rows.shape[0], 5, epsilon, 0.01).run(Units.from_rows(rows), seed)


def clustered(seed: int = 0, units: int = 3000) -> tuple[Floats, Floats]:
    """Two hundred words, of which four blocks of ten go together; the rest is common to all documents, or rare."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((4, 200))
    for k in range(4):
        truth[k, 10 * k : 10 * k + 10] = 0.05
    truth[:, 40:100] = 0.5 / 60
    return truth, rng.multinomial(40, truth[rng.integers(4, size=units)]).astype(float)


# ---- the free half -----------------------------------------------------------------------------------------------


def test_on_simplex_gives_nearest_probability_vector() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 7))
    found = on_simplex(rows)
    assert np.allclose(found.sum(axis=1), 1)
    assert np.all(found >= 0)
    others = np.random.default_rng(1).dirichlet(np.ones(7), 200)
    nearest = np.linalg.norm(rows[:, None] - others[None], axis=2).min(axis=1)
    assert np.all(np.linalg.norm(rows - found, axis=1) <= nearest)


def test_nonnegative_factors_ignore_diagonal_and_are_unbiased_by_noise() -> None:
    rng = np.random.default_rng(0)
    parts = np.kron(np.eye(3), np.ones((15, 1))) + 0.05
    matrix = parts @ parts.T
    np.fill_diagonal(matrix, 1e6)
    found = nonnegative_factors(matrix, 3, iterations=2000)
    rest = found @ found.T - parts @ parts.T
    np.fill_diagonal(rest, 0)
    assert np.max(np.abs(rest)) < 0.05
    noise = np.triu(0.3 * rng.normal(size=(45, 45)), 1)
    noisy = nonnegative_factors(matrix + noise + noise.T, 3)
    low = [np.sort(column)[:30].mean() for column in noisy.T]  # where a factor has nothing to say
    assert max(low) < 0.15
    assert sorted(np.argmax(noisy.reshape(3, 15, 3).mean(axis=1), axis=0).tolist()) == [0, 1, 2]


def test_topics_from_exact_moments_are_found() -> None:
    rng = np.random.default_rng(0)
    topics, weights = rng.dirichlet(np.full(12, 0.3), 4), np.array([0.4, 0.3, 0.2, 0.1])
    pairs = (topics.T * weights) @ topics
    tensor = np.einsum("k,ki,kj,kl->ijl", weights, topics, topics, topics)
    begun, begun_weights = topics_from_moments(pairs, tensor, np.eye(12), 4, 0)
    assert component_error(begun, topics) < 1e-6
    assert np.sort(begun_weights) == pytest.approx(np.sort(weights), abs=1e-6)
    blurred = on_simplex(topics + 0.03 * rng.normal(size=topics.shape))
    assert component_error(fit_topics(tensor, np.eye(12), blurred, weights)[0], topics) < 2e-3
    axes = np.linalg.eigh(pairs)[1][:, ::-1][:, :4]
    along = np.einsum("ijk,ia,jb,kc->abc", tensor, axes, axes, axes)
    assert component_error(fit_topics(along, axes, blurred, weights, pairs, 1.0)[0], topics) < 5e-3
    again, again_weights = refine_topics(tensor, blurred, weights, 1e-3)
    assert component_error(again, topics) < 2e-3
    assert again_weights == pytest.approx(weights, abs=5e-3)


def test_topics_fit_with_other_starts_leaves_local_minimum() -> None:
    rng = np.random.default_rng(0)
    topics, weights = rng.dirichlet(np.full(10, 0.3), 5), np.full(5, 0.2)
    tensor = np.einsum("k,ki,kj,kl->ijl", weights, topics, topics, topics)
    lost = np.array([*topics[[0, 0, 1, 2]], np.eye(10)[np.argmin(topics.sum(axis=0))]])
    assert component_error(fit_topics(tensor, np.eye(10), lost, weights)[0], topics) > 0.02
    assert component_error(fit_topics(tensor, np.eye(10), lost, weights, others=4)[0], topics) < 2e-3


# ---- the program -------------------------------------------------------------------------------------------------


def test_topics_bias_of_em_round_from_start_is_removed() -> None:
    rng = np.random.default_rng(4)
    topics = np.vstack([rng.dirichlet(np.full(8, 0.5), 2), np.zeros((1, 8))])
    topics[2] = 0.8 * topics[1] + 0.2 * rng.dirichlet(np.full(8, 0.5))  # nearly alike
    weights = np.array([0.5, 0.3, 0.2])
    begun = 0.85 * topics + 0.15 * rng.dirichlet(np.full(8, 0.5), 3)

    def round_of_em(documents: NDArray[np.float64]) -> NDArray[np.float64]:
        likely = np.exp(documents @ np.log(begun).T)
        return np.asarray((likely / np.sum(likely, axis=1, keepdims=True)).T @ documents / 15)

    documents = rng.multinomial(15, topics[rng.choice(3, size=100_000, p=weights)]).astype(float)
    told = round_of_em(documents)
    counts = np.sum(told, axis=1)
    plain, shares = told / counts[:, None], counts / np.sum(counts)
    found, mended = correct_em_bias(round_of_em, plain, shares, 15)
    np.testing.assert_allclose(np.sum(found, axis=1), 1)
    assert component_error(found, topics) < 0.7 * component_error(plain, topics)
    assert np.linalg.norm(mended - weights) < np.linalg.norm(shares - weights)
    alone, whole = correct_em_bias(round_of_em, plain, np.array([1.0, 0.0, 0.0]), 15)  # no document of two topics
    assert np.all(np.isfinite(alone))
    assert np.sum(whole) == pytest.approx(1)


@pytest.mark.parametrize(
    ("words", "topics", "length", "most"), [(10, 5, 3, 0.04), (10, 5, 30, 0.008), (50, 10, 3, 0.09), (50, 10, 30, 0.02)]
)
def test_topics_by_tensor_are_found(words: int, topics: int, length: int, most: float) -> None:
    truth, rows = made(words, topics, length)
    found = fit(rows, topics, 1.0, path="tensor", length=length)
    assert component_error(found["topics"].value, truth) < most
    assert np.allclose(found["topics"].value.sum(axis=1), 1)
    assert found["weights"].value.sum() == pytest.approx(1)
    assert found["topics"].axes[1].labels == names(words)


def test_topics_by_pairs_among_many_words_are_found() -> None:
    _truth, rows = clustered()
    found = fit(csr_array(rows), 4, 4.0, path="pairs", n_words=100)
    assert np.all(found["carried"].value == 1)
    labels = found["topics"].axes[1].labels
    assert set(names(40)) <= set(labels) <= set(names(100))  # what no document holds is not kept
    top = [{int(labels[at][1:]) // 10 for at in np.argsort(-row)[:8]} for row in found["relevance"].value]
    assert sorted(top, key=min) == [{0}, {1}, {2}, {3}]


def independent(seed: int, units: int, length: int) -> Floats:
    """Documents of independent words without topics, of which some are in most documents."""
    rng = np.random.default_rng(seed)
    common = 1 / np.arange(1, 401)
    return rng.multinomial(3 + rng.poisson(length, size=units), common / common.sum()).astype(float)


@pytest.mark.parametrize(("units", "length"), [(4000, 15), (1500, 100)])
def test_topics_of_documents_without_topics_are_not_carried_at_large_budget(units: int, length: int) -> None:
    """Documents are assigned to parts by the words of the part, so that these stand out in the sums of any part."""
    for seed in range(3):
        rows = independent(seed, units, length)
        assert np.sum(fit(rows, 5, 8.0, seed, path="pairs")["carried"].value) <= 1


def test_topics_of_short_documents_that_are_carried_agree_with_true_ones() -> None:
    rng = np.random.default_rng(0)
    common = 1 / np.arange(1, 401)
    truth = np.tile(0.4 * common / common.sum(), (6, 1))
    for k in range(6):
        truth[k, 50 + 15 * k : 65 + 15 * k] += 0.04
    rows = rng.multinomial(3 + rng.poisson(14, size=6000), truth[rng.integers(6, size=6000)]).astype(float)
    found = fit(rows, 6, 2.0, path="pairs")
    carried = found["carried"].value > 0
    labels = found["topics"].axes[1].labels
    top = [[int(labels[at][1:]) for at in np.argsort(-row)[:5]] for row in found["relevance"].value]
    own = [len({(word - 50) // 15 for word in words}) == 1 and min(words) >= 50 for words in top]
    assert np.sum(carried) >= 4
    assert np.mean(np.array(own)[carried]) >= 0.8


def test_independent_sums_equal_those_of_independent_documents() -> None:
    rng = np.random.default_rng(0)
    shares = np.array([0.999, 0.6, 0.3, 0.1, 0.05, 0.02])
    rates = -np.log1p(-shares)
    weights = np.sqrt(np.log(1 / np.clip(shares, 1e-3, 0.9)))
    scores = 10 * rng.uniform(size=(6, 2))
    rows = rng.poisson(rates, size=(60_000, 6)).astype(float)
    statistic = TopicSums(
        columns=6, words=np.arange(6.0), weights=weights, scores=scores, offsets=np.zeros(2), kind="roots"
    )
    exact = statistic.split(statistic.total(Units.from_rows(rows)))
    level, variance = independent_sums(np.minimum(shares, 0.9), weights, scores, 60_000, exact.sum(axis=0), 0)
    # Six standard deviations, for twelve numbers.
    # The last term is for entries of so few documents that their variance is not known.
    assert np.all(np.abs(level - exact) < 6 * np.sqrt(variance) + 0.02 * exact + 10)


def test_topics_at_tiny_budget_carry_no_topic() -> None:
    _truth, rows = clustered()
    assert np.sum(fit(rows, 4, 0.02, path="pairs")["carried"].value) == 0
    _truth, rows = made(50, 10, 3)
    assert np.sum(fit(rows, 10, 0.02, path="tensor")["carried"].value) == 0


@pytest.mark.parametrize(("words", "length"), [(10, 1), (10, 2), (40, 1), (40, 2)])
def test_topics_of_documents_without_triples_carry_no_topic(words: int, length: int) -> None:
    """Whatever noise looks like, and however large the budget."""
    for seed in range(2):
        _truth, rows = made(words, 3, length, seed=seed)
        for epsilon in (0.1, 3.0):
            found = fit(rows, 3, epsilon, seed=seed, path="tensor", length=length)
            assert np.sum(found["carried"].value) == 0
            assert np.all(found["topics"].std == 1)


def test_topics_with_short_documents_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.full(40, 0.3), 4)
    rows = rng.multinomial(rng.integers(1, 4, 40_000), truth[rng.integers(4, size=40_000)]).astype(float)
    found = fit(rows, 4, 3.0, path="tensor", length=3)
    assert component_error(found["topics"].value, truth) < 0.04
    assert np.all(found["carried"].value == 1)


def test_topics_noisy_number_of_units_below_plan_is_used() -> None:
    assert documents_behind(900.0, 50.0, 1000.0) == 1000
    assert documents_behind(500.0, 50.0, 1000.0) == 500
    assert documents_behind(-20.0, 50.0, 1000.0) == 50


def test_topics_long_word_list_keeps_few_words_of_noise() -> None:
    _truth, rows = clustered()
    words = csr_array(hstack([csr_array(rows[:, :100]), csr_array((len(rows), 99_900))]))
    found = fit(words, 4, 4.0, path="pairs", n_words=300)
    kept = [int(name[1:]) for name in found["topics"].axes[1].labels]
    assert set(range(40)) <= set(kept)
    assert sum(at >= 100 for at in kept) <= 20  # ten are expected


def test_topics_path_follows_public_facts_and_is_in_description() -> None:
    few, many = TopicsProgram(columns=names(30), n_components=3), TopicsProgram(columns=names(100), n_components=3)

    def chosen(algorithm: TopicsProgram, units: int | None) -> str:
        return algorithm.resolve(PublicFacts(noise=1.0, units=units)).chosen

    assert chosen(few, 100) == "tensor"
    assert (chosen(many, 1000), chosen(many, 100_000)) == ("pairs", "tensor")
    assert chosen(TopicsProgram(columns=names(6906), n_components=10), 10**7) == "pairs"
    assert chosen(many.model_copy(update={"path": "tensor"}), 10) == "tensor"
    assert "basis" not in few.describe
    long = few.model_copy(update={"length": 20.0}).describe
    assert "EM" in long
    assert "20" in long
    assert "basis" in many.model_copy(update={"path": "tensor"}).describe
    assert "100" in many.model_copy(update={"path": "pairs"}).describe


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(
    ("words", "more"),
    [(12, {}), (12, {"length": 20}), (40, {"path": "tensor"}), (40, {"path": "pairs", "n_words": 20})],
    ids=str,
)
def test_topics_requests_equal_planned_releases(words: int, more: dict[str, Any], adjacency: Adjacency) -> None:
    algorithm = TopicsProgram(columns=names(words), n_components=3, **more)
    _truth, rows = made(words, 3, 20, units=500)
    units = 500.0 if adjacency is Adjacency.REPLACE_ONE else None

    def answer(request: Request) -> Release:
        return Release(request.statistic.total(Units.from_rows(rows)), 1e-3, units, ("a", "b"))

    found, asked = drive(algorithm.program(adjacency), answer)
    assert found["topics"].value.sum(axis=1) == pytest.approx(np.ones(3))
    planned = algorithm.releases(adjacency)
    for request, plan in zip(asked, planned, strict=True):
        assert (request.statistic.name, request.statistic.size) == (plan.statistic, plan.size)
        assert request.statistic.sensitivity(adjacency) == plan.sensitivity
    assert sum(plan.share for plan in planned) == pytest.approx(1)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"n_components": 13}, "n_features"),
        ({"n_words": 3, "path": "pairs", "n_components": 4}, "n_features"),
        ({"pair_share": 0.95, "path": "pairs"}, "pair_share"),
        ({"path": "words"}, "path"),
    ],
)
def test_topics_bad_parameter_is_refused(more: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        TopicsProgram(**{"columns": names(12), "n_components": 3} | more)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"length": 20}, {"path": "pairs"}], ids=str)
def test_topics_audit_does_not_exceed_claim(more: dict[str, Any]) -> None:
    algorithm = TopicsProgram(columns=names(5), n_components=2, **more)
    assert audit(Scheme("secure-sum"), algorithm, samples=400).holds
