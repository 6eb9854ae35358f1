"""Statistics of documents: what they count, by enumeration; sparse rows and dense ones; persons with several documents.

Their bounds and who decides for whom are attacked in test_sensitivity.py and test_coupling.py.
"""

from __future__ import annotations

import math
import tracemalloc
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.grid import BLOCK_ROWS, summation_slack
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.topics import PairMoment, PairNorms, TopicSums, TripleMoment, WordPairs, WordPresence

Floats = NDArray[np.float64]

STATISTICS: list[BoundedStatistic] = [
    WordPresence(columns=6),
    WordPresence(columns=6, words=[4, 1, 2]),
    WordPairs(columns=6, words=[4, 1, 2], weights=[1, 2, 0.5]),
    TopicSums(columns=6, scores=np.eye(6)[:, :2] * 5, offsets=np.zeros(2)),
    TopicSums(columns=6, scores=-np.eye(6)[:, :2], offsets=np.zeros(2), kind="shares", clip=0.7),
    PairNorms(columns=6),
    PairMoment(columns=6, clip=0.4),
    TripleMoment(columns=6, clip=0.2, basis=np.eye(6)[:, 2:5]),
]


def documents(seed: int = 0, count: int = 40) -> Floats:
    return np.random.default_rng(seed).poisson(0.8, (count, 6)).astype(float)


def choices(document: Floats, draws: int) -> Floats:
    """How likely each ordered choice of words is, by going through all of them."""
    words = np.repeat(np.arange(len(document)), document.astype(int))
    found = np.zeros((len(document),) * draws)
    for chosen in permutations(words.tolist(), draws):
        found[chosen] += 1
    return np.asarray(found / found.sum())


def test_pair_and_triple_moments_equal_enumeration() -> None:
    document = np.array([3.0, 0.0, 1.0, 2.0])
    one = Units.from_rows(document[None, :])
    pairs, triples = PairMoment(columns=4), TripleMoment(columns=4)
    assert pairs.split(pairs.total(one)) == pytest.approx(choices(document, 2))
    assert triples.split(triples.total(one)) == pytest.approx(choices(document, 3))
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    along = TripleMoment(columns=4, basis=basis)
    wanted = np.einsum("ijk,ia,jb,kc->abc", choices(document, 3), basis, basis, basis)
    assert along.split(along.total(one)) == pytest.approx(wanted)


def test_pair_and_triple_moments_clipped_have_norm_one() -> None:
    """What is clipped to a small norm has exactly that norm."""
    for document in ([3.0, 0, 1, 2], [1.0, 1, 1, 0], [5.0, 0, 0, 0], [40.0, 2, 0, 900]):
        one = Units.from_rows(np.array([document]))
        for kind in (PairMoment, TripleMoment):
            assert np.linalg.norm(kind(columns=4, clip=1e-3).total(one)) == pytest.approx(1, rel=1e-8)


def test_word_presence_of_document_has_norm_one() -> None:
    found = WordPresence(columns=3).total(Units.from_rows(np.array([[2.0, 0, 0], [1, 7, 0], [0, 0, 0]])))
    assert found == pytest.approx([1 + np.sqrt(0.5), np.sqrt(0.5), 0])


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: stat.name)
def test_topic_statistics_sensitivity_is_attained_within_two_percent(stat: BoundedStatistic) -> None:
    """Those of one word each are among the farthest; added, all have the norm 1."""
    rng = np.random.default_rng(5)
    rows = np.concatenate([documents(4), 9 * np.eye(6), np.ones((1, 6)), rng.poisson(3, (9, 6)), np.zeros((1, 6))])
    said = np.array([stat.total(Units.from_rows(row[None, :])) for row in rows])
    for adjacency, moved in (
        (Adjacency.REPLACE_ONE, np.linalg.norm(said[:, None] - said[None], axis=2)),
        (Adjacency.ADD_REMOVE, np.linalg.norm(said, axis=1)),
    ):
        bound = stat.sensitivity(adjacency)
        assert 0.98 * bound < float(np.max(moved)) <= bound


def test_topic_sums_equal_round_of_em() -> None:
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    rows = np.array([[5.0, 1, 0], [0, 2, 4], [1, 1, 1]])
    found = TopicSums(columns=3, scores=np.log(topics).T, offsets=np.log([0.5, 0.5]), kind="shares")
    likely = np.exp(rows @ np.log(topics).T)
    wanted = (likely / likely.sum(axis=1, keepdims=True)).T @ (rows / rows.sum(axis=1, keepdims=True))
    assert found.split(found.total(Units.from_rows(rows))) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: stat.name)
def test_topic_statistics_of_sparse_rows_equal_dense(stat: BoundedStatistic) -> None:
    rows = documents()
    for held in (csr_array(rows), csr_array(rows.astype(np.uint8))):
        for offsets in (None, np.array([0, 3, 4, 40])):
            assert stat.total(Units(held, offsets)) == pytest.approx(stat.total(Units(rows, offsets)), abs=1e-12)


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: stat.name)
def test_topic_statistics_repeated_word_in_sparse_row_is_added(stat: BoundedStatistic) -> None:
    twice = csr_array((np.ones(4), np.array([0, 0, 2, 4]), np.array([0, 4])), shape=(1, 6))
    plain = Units.from_rows(np.array([[2.0, 0, 1, 0, 1, 0]]))
    assert np.array_equal(stat.total(Units(twice)), stat.total(plain))
    assert np.array_equal(stat.total(Units.from_rows(twice)), stat.total(plain))


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: stat.name)
def test_topic_statistics_person_counts_as_mean_of_documents(stat: BoundedStatistic) -> None:
    rows = documents(3, 4)
    whole = stat.total(Units(rows, np.array([0, 4])))
    each = [stat.total(Units.from_rows(row[None, :])) for row in rows]
    assert whole == pytest.approx(np.mean(each, axis=0), abs=1e-12)


@pytest.mark.parametrize("stat", STATISTICS, ids=lambda stat: stat.name)
def test_topic_statistics_repeated_short_integers_do_not_wrap(stat: BoundedStatistic) -> None:
    twice = csr_array((np.array([100, 100, 3], dtype=np.int8), np.array([0, 0, 2]), np.array([0, 3])), shape=(1, 6))
    plain = stat.total(Units.from_rows(np.array([[200.0, 0, 3, 0, 0, 0]])))
    for units in (Units(twice), Units.from_rows(twice), Units.from_rows(twice.tocoo(copy=True))):
        assert np.array_equal(stat.total(units), plain)


@pytest.mark.parametrize("stat", [*STATISTICS, TripleMoment(columns=60)], ids=lambda stat: f"{stat.name}-{stat.size}")
def test_topic_statistics_person_with_many_documents_takes_bounded_memory(stat: BoundedStatistic) -> None:
    rows = csr_array(np.random.default_rng(0).poisson(0.1, (10_000, stat.columns)).astype(float))
    tracemalloc.start()
    whole = stat.total(Units(rows, np.array([0, 10_000])))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**27  # triples of 60 words alone would take 288 MB
    assert whole == pytest.approx(stat.total(Units(rows)) / 10_000, abs=1e-9)


def test_pair_norms_documents_without_pairs_are_not_counted() -> None:
    rows = np.array([[1.0, 0, 0], [0, 0, 0], [2.0, 0, 0]])
    assert PairNorms(columns=3, bins=4).total(Units.from_rows(rows)).tolist() == [0, 0, 0, 1]


def test_vector_sum_of_sparse_rows_equals_dense() -> None:
    rows = documents()
    stat = build("vector_sum", {"columns": 6, "clip": 1.0})
    assert np.array_equal(stat.total(Units.from_rows(csr_array(rows))), stat.total(Units.from_rows(rows)))


def test_units_dense_short_integers_do_not_wrap() -> None:
    twice = csr_array((np.array([100, 100], dtype=np.int8), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert Units(twice).dense().rows.tolist() == [[200.0, 0.0]]
    assert next(Units(twice).each()).tolist() == [[200.0, 0.0]]


@pytest.mark.parametrize("value", [np.nan, -3.0, np.inf, 1e300, 0.4])
def test_topic_statistics_bad_count_becomes_whole_number(value: float) -> None:
    row = np.array([[value, 2.0, 0, 1, 1, 0]])
    taken = {np.inf: 2.0**20, 1e300: 2.0**20}.get(value, 0.0)
    plain = np.array([[taken, 2.0, 0, 1, 1, 0]])
    for stat in STATISTICS:
        assert np.array_equal(stat.total(Units.from_rows(row)), stat.total(Units.from_rows(plain)))
        assert np.array_equal(stat.total(Units.from_rows(csr_array(row))), stat.total(Units.from_rows(plain)))


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("word_presence", {"words": [0, 0]}),
        ("word_presence", {"words": [7]}),
        ("word_presence", {"words": [0.5]}),
        ("word_pairs", {"weights": [1, 1]}),
        ("word_pairs", {"weights": -np.ones(6)}),
        ("topic_sums", {"scores": np.ones((5, 2)), "offsets": [0, 0]}),
        ("topic_sums", {"scores": np.ones((6, 2)), "offsets": [0]}),
        ("topic_sums", {"scores": np.ones((6, 2)), "offsets": [0, 0], "weights": np.ones(6), "kind": "shares"}),
        ("triple_moment", {"basis": np.ones((6, 2))}),
        ("triple_moment", {"basis": np.eye(5)}),
    ],
)
def test_topic_statistic_bad_parameter_is_refused(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match=f"'{name}'"):
        build(name, {"columns": 6, **params})


def test_triple_moment_many_words_without_basis_is_refused() -> None:
    with pytest.raises(BadParameter, match="basis"):
        TripleMoment(columns=61)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_topic_statistics_sensitivity_covers_rounding_of_subtracted_terms(adjacency: Adjacency) -> None:
    """Sums round relative to the terms that are added, and these are longer than what is left of them."""
    pairs = triples = 0.0
    for document in product(range(5), repeat=3):
        c, eye = np.array(document, dtype=float), np.eye(3)
        n = float(np.linalg.norm(c))
        left = float(np.linalg.norm(np.outer(c, c) - np.diag(c)))
        if np.sum(c) >= 2:
            pairs = max(pairs, (n**2 + n) / left)
        met = np.einsum("i,ij,k->ijk", c, eye, c)
        same = np.einsum("i,ij,ik->ijk", c, eye, eye)
        whole = np.einsum("i,j,k->ijk", c, c, c)
        taken = met + np.moveaxis(met, 2, 0) + np.moveaxis(met, 2, 1)
        if np.sum(c) >= 3:
            left = float(np.linalg.norm(whole - taken + 2 * same))
            triples = max(triples, (n**3 + 3 * n**2 + 2 * n) / left)
    exact = math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0
    tiny = 1e-12
    assert PairMoment(columns=3).sensitivity(adjacency) >= exact + (pairs - 1) * summation_slack() - tiny
    assert TripleMoment(columns=3).sensitivity(adjacency) >= exact + (triples - 1) * summation_slack() - tiny
    along = TripleMoment(columns=300, basis=np.eye(300)[:, :4])
    more = 2 * triples * summation_slack(rows=BLOCK_ROWS + 3 * 300) - summation_slack()
    assert along.sensitivity(adjacency) >= exact + more - tiny
