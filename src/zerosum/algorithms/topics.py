"""Topics of documents over sites: from triples of words where words are few, else from which words go together."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import ndtri

from zerosum.algorithms.components import heard_shares
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.algorithms.topic_factors import fitted, nonnegative_factors, on_simplex, refitted, started, unmistaken
from zerosum.arrays import Floats
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.topics import PairMoment, PairNorms, TopicSums, TripleMoment, WordPairs, WordPresence

Path = Literal["tensor", "pairs"]

# All values: chosen by hand; no benchmark recorded, unless a source is given.
# Most words whose triples are all released; with more, triples are projected on a basis.
DENSE = 30
# The tensor path with more words than that: most words, and least documents per word.
_MOST_TENSOR, _DOCUMENTS = 500, 200
# Least words in a document for a round of EM, which needs to recognise the topic of a document.
_LONG = 10
# Threshold of the kept words in standard deviations, and the most words that noise alone may add on average: the
# threshold rises with the length of the list.
_KEPT, _FALSE = 3.0, 10
# Share of documents that the clips do not change.
_INSIDE = 0.95
# Factor of the cosine in the responsibilities of the pairs path: larger assigns a document to its nearest topic alone.
_SHARP = 40.0
# Share of the mean topic that is mixed into each topic before EM, so that no word has probability zero.
_SMOOTH = 0.02
# Random starts of the least squares fit besides the one from moments (docs/topics.md: a fifth start still paid).
_STARTS = 5
# Noise standard deviations between a topic and its nearest one for `carried`, and for the start of EM.
_SURE, _BEGUN = 3.0, 2.0
# Pairs path: a carried topic has _WORDS words that are _STANDS_OUT standard deviations above the common level.
_STANDS_OUT, _WORDS = 3.0, 5


class TopicsProgram(Algorithm):
    """Topics of documents: a row counts how often each word (each column) occurs in one.

    Two paths, by what is public: the number of words and documents. "tensor", for few words and many documents, is the
    single topic model: a histogram of norms sets clips (`norm_share`); how likely pairs (`pair_share`) and triples of
    words are then give topics by a decomposition and least squares on the simplex (at most 30 words: triples alone,
    pairs are their margin); documents with at least ten words (`length`, public) also give a round of EM
    (`sum_share`). "pairs", for everything else: the words that stand above the noise of a first release are kept, at
    most `n_words` (`word_share`); which of them go together (`pair_share`) is factored into nonnegative parts; and the
    sums of the documents nearest to each (`sum_share`) say how often its words occur.

    Results: `topics`, probabilities of the words that were kept; `weights`, their shares of the documents; `relevance`,
    by how much a word speaks for a topic, to be ranked by; `carried`, 1 for topics that the budget carries: five words
    stand three standard deviations above what all topics have in common ("pairs"), or its size and its distance to the
    nearest topic three times above their noise ("tensor"; none is where triples, which only documents of three words or
    more have, do not stand above theirs, nor one from a round of EM whose start does not, twice).
    """

    name: ClassVar[str] = "topics"
    n_components: int = Field(gt=0, le=200)
    n_words: int = Field(default=300, gt=2, le=3000)
    length: float | None = Field(default=None, gt=0, le=1e6)
    path: Path | Literal["auto"] = "auto"
    word_share: float = Field(default=0.12, gt=0, lt=1)
    """What finding the words that stand above the noise costs, as a share of the budget."""
    norm_share: float = Field(default=0.04, gt=0, lt=1)
    """What the histogram of norms costs, on the path `tensor`."""
    pair_share: float | None = Field(default=None, gt=0, lt=1)
    """What pairs of words cost, by default as the path has it."""
    sum_share: float | None = Field(default=None, gt=0, lt=1)
    """What the sums by topic cost, by default as the path has it."""
    seed: int = Field(default=0, ge=0)
    """Of starts of decompositions, nothing else."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        words = min(len(self.columns), self.n_words) if self.path == "pairs" else len(self.columns)
        if self.n_components > words:
            raise ValueError(f"there are more topics ({self.n_components}) than words: n_features = {words}")
        if self.path == "tensor" and len(self.columns) > 5000:
            raise ValueError("the tensor path takes at most 5000 words: give path = 'pairs'")
        if not min(self._shares.values()) > 0:
            raise ValueError("the shares leave nothing for the last release")
        return self

    @property
    def chosen(self) -> Path:
        """The path that runs."""
        if self.path != "auto":
            return self.path
        return "tensor" if len(self.columns) <= DENSE else "pairs"

    def resolve(self, facts: PublicFacts) -> Self:
        """Many words need many documents for the tensor path, which has a model to be right about."""
        if self.path != "auto":
            return self
        words, units = len(self.columns), facts.units or GUESSED_UNITS
        few = words <= DENSE or (words <= _MOST_TENSOR and units >= _DOCUMENTS * words)
        return self.model_copy(update={"path": "tensor" if few else "pairs"})

    @property
    def _long(self) -> bool:
        return self.length is not None and self.length >= _LONG

    @property
    def _dense(self) -> bool:
        return len(self.columns) <= DENSE

    @property
    def _kept(self) -> int:
        """How many words the pairs path has room for."""
        return min(self.n_words, len(self.columns))

    @property
    def _shares(self) -> dict[str, float]:
        """By release, in order; what is not given is by default, and what is left goes to the last."""
        if self.chosen == "pairs":
            pairs = 0.55 if self.pair_share is None else self.pair_share
            sums = 1 - self.word_share - pairs if self.sum_share is None else self.sum_share
            return {"words": self.word_share, "pairs": pairs, "sums": min(sums, 1 - self.word_share - pairs)}
        usual = 0.46 if self._dense else 0.65
        sums = 0.0 if not self._long else usual if self.sum_share is None else self.sum_share
        left = 1 - self.norm_share - sums
        pairs = 0.0 if self._dense else 0.35 * left if self.pair_share is None else self.pair_share
        shares = {"norms": self.norm_share, "pairs": pairs, "triples": left - pairs, "sums": sums}
        absent = ({"pairs"} if self._dense else set()) | (set() if self._long else {"sums"})
        return {name: share for name, share in shares.items() if name not in absent}

    @property
    def describe(self) -> str:
        words = len(self.columns)
        if self.chosen == "pairs":
            return (
                f"{words} words are too many for their triples: at most {self._kept} that stand above noise are kept, "
                "pairs of them are factored, and documents are summed by topic"
            )
        means = "all their triples" if self._dense else "pairs, and triples along a basis"
        last = f", then a round of EM, since documents have about {self.length:g} words" if self._long else ""
        return f"{words} words, few enough for the single topic model: {means}{last}"

    # ---- requests --------------------------------------------------------------------------------------------------

    def _word_pairs(self, words: Floats, weights: Floats) -> WordPairs:
        return WordPairs(columns=len(self.columns), words=words, weights=weights)

    def _root_sums(self, words: Floats, weights: Floats, scores: Floats) -> TopicSums:
        K = self.n_components
        return TopicSums(
            columns=len(self.columns), words=words, weights=weights, scores=scores, offsets=np.zeros(K), kind="roots"
        )

    def _em_sums(self, logs: Floats, offsets: Floats, clip: float) -> TopicSums:
        return TopicSums(columns=len(self.columns), scores=logs, offsets=offsets, kind="shares", clip=clip)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        D, K = len(self.columns), self.n_components
        if self.chosen == "pairs":
            first, ones = np.arange(self._kept, dtype=np.float64), np.ones(self._kept)
            made: dict[str, BoundedStatistic] = {
                "words": WordPresence(columns=D),
                "pairs": self._word_pairs(first, ones),
                "sums": self._root_sums(first, ones, np.zeros((self._kept, K))),
            }
        else:
            basis = None if self._dense else np.eye(D)[:, :K]
            made = {
                "norms": PairNorms(columns=D),
                "pairs": PairMoment(columns=D),
                "triples": TripleMoment(columns=D, basis=basis),
                "sums": self._em_sums(np.zeros((D, K)), np.zeros(K), 1.0),
            }
        return tuple(PrivateSum(made[name], share) for name, share in self._shares.items())

    def program(self, adjacency: Adjacency) -> Program:
        if self.chosen == "pairs":
            return (yield from self._by_pairs())
        return (yield from self._by_tensor())

    # ---- which words go together -----------------------------------------------------------------------------------

    def _by_pairs(self) -> Program:
        shares = self._shares
        release = yield PrivateSum(WordPresence(columns=len(self.columns)), shares["words"])
        words, weights, common = self._vocabulary(release)
        pairs = self._word_pairs(words, weights)
        release = yield PrivateSum(pairs, shares["pairs"])
        there = weights > 0
        parts = np.zeros((len(words), self.n_components))
        parts[there] = nonnegative_factors(
            pairs.split(release.value)[np.ix_(there, there)], self.n_components, self.seed
        )
        profiles = (parts / np.maximum(np.linalg.norm(parts, axis=0), 1e-300)).T
        apart = profiles - np.outer(profiles @ common, common)
        apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-300)
        sums = self._root_sums(words, weights, _SHARP * apart.T)
        release = yield PrivateSum(sums, shares["sums"])
        told = sums.split(release.value)[:, there]
        return self._named_words(words[there].astype(int), weights[there], told, profiles[:, there], release.noise_std)

    def _vocabulary(self, release: Release) -> tuple[Floats, Floats, Floats]:
        """The words that are looked at from here on, their weights (the root of the logarithm of one over the share of
        documents that hold them; 0 for those that noise may have made), and the direction all documents have in common.

        The release says how often a word occurs and, in all, how many different words a document has: a document of n
        words adds n/sqrt(n).
        """
        heard, noise = release.value, release.noise_std
        order = np.argsort(-heard, kind="stable")[: self._kept]
        top = heard[order]
        sure = top > max(_KEPT, -float(ndtri(min(_FALSE / len(heard), 0.5)))) * noise
        sure[: max(self.n_components, 10)] = True
        units = release.units or max(float(top[0]), 1.0) * 9
        different = max(float(np.sum(heard)) / units, 1.0)
        shares = np.clip(top * different / units, 1e-3, 0.9)
        weights = np.where(sure, np.sqrt(np.log(1 / shares)), 0.0)
        common = np.maximum(top, 0.0) * weights
        return order.astype(np.float64), weights, common / max(float(np.linalg.norm(common)), 1e-300)

    def _named_words(
        self, words: NDArray[np.int_], weights: Floats, told: Floats, profiles: Floats, noise: float
    ) -> dict[str, Quantity]:
        """Sums by topic, as far as they are surer than the factors, which are scaled to them."""
        scale = np.sum(told * profiles, axis=1, keepdims=True)  # profiles have norm 1 or are zero
        guess = np.maximum(scale, 0.0) * profiles
        beyond = np.maximum(np.mean((told - guess) ** 2, axis=1, keepdims=True) - noise**2, 0.05 * noise**2 + 1e-9)
        mixed = (told * beyond + guess * noise**2) / (beyond + noise**2)
        mass = np.maximum(np.sum(mixed, axis=1), 1e-9)
        base = np.maximum(np.sum(told, axis=0), 0.0)
        excess = told - np.outer(mass, base / max(float(np.sum(base)), 1e-300))
        stands = np.sum(excess > _STANDS_OUT * noise, axis=1)
        topics = np.maximum(mixed, 0.0) / weights
        topics /= np.maximum(np.sum(topics, axis=1, keepdims=True), 1e-300)
        return self._estimate(words, topics, mass / np.sum(mass), stands >= _WORDS)

    # ---- the single topic model ------------------------------------------------------------------------------------

    def _by_tensor(self) -> Program:
        D, shares = len(self.columns), self._shares
        norms = PairNorms(columns=D)
        release = yield PrivateSum(norms, shares["norms"])
        heard = np.cumsum(heard_shares(release.value, release.noise_std))
        clip = float(norms.edges[1 + min(int(np.searchsorted(heard, _INSIDE * heard[-1])), norms.bins - 1)])
        units = release.units or max(float(np.sum(release.value)), 1.0)
        topics, weights, noise = yield from self._decomposed(clip, units)
        carried = _apart(topics, noise, _SURE)
        if self._long:
            begun = _apart(topics, noise, _BEGUN)
            common = weights @ topics
            logs = np.log(np.maximum((1 - _SMOOTH) * topics + _SMOOTH * common, 1e-9)).T
            sums = self._em_sums(logs, np.log(np.maximum(weights, 1e-3)), min(1.0, 1.1 * math.sqrt(clip)))
            release = yield PrivateSum(sums, shares["sums"])
            told = sums.split(release.value)
            counts = np.maximum(np.sum(told, axis=1), 0.02 * units / self.n_components)
            found = on_simplex(told / counts[:, None])
            topics, weights = unmistaken(
                lambda made_up: sums.split(sums.total(Units.from_rows(made_up))),
                found,
                counts / np.sum(counts),
                round(self.length or _LONG),
            )
            noise = np.minimum(sums.clip * release.noise_std / counts, 1.0)
            carried = begun & _apart(topics, noise, _SURE)
        return self._estimate(np.arange(D), topics, weights, carried, noise)

    def _decomposed(self, clip: float, units: float) -> Generator[Request, Release, tuple[Floats, Floats, Floats]]:
        """Topics, weights, and the noise of a topic's entries: all there is, 1, where triples are nothing but noise, as
        those of documents of fewer than three words are."""
        D, K, shares = len(self.columns), self.n_components, self._shares
        pairs, level, axes = None, np.inf, np.eye(D)
        if not self._dense:
            moment = PairMoment(columns=D, clip=clip)
            release = yield PrivateSum(moment, shares["pairs"])
            pairs = moment.split(release.value)
            spread = clip * release.noise_std
            documents = heard_units(float(np.sum(pairs)), spread * D, units)
            pairs = pairs / documents
            axes = np.linalg.eigh(pairs)[1][:, ::-1][:, :K]
            level = max(spread / documents, 1e-100)
        triples = TripleMoment(columns=D, clip=clip**1.5, basis=None if self._dense else axes)
        release = yield PrivateSum(triples, shares["triples"])
        tensor = triples.split(release.value)
        spread = triples.clip * release.noise_std
        ones = np.sum(axes, axis=0)  # what every topic, a probability vector, has the product 1 with
        total, doubt = float(np.einsum("abc,a,b,c", tensor, ones, ones, ones)), spread * float(ones @ ones) ** 1.5
        documents = max(total, 1.0) if self._dense else heard_units(total, doubt, units)
        tensor, noise = tensor / documents, spread / documents
        seen = np.sum(tensor, axis=2) if pairs is None else pairs
        topics, weights = started(seen, tensor, axes, K, self.seed)
        topics, weights = fitted(
            tensor, axes, topics, weights, pairs, (noise / level) ** 2, _STARTS if self._dense else 0
        )
        if self._dense:
            topics, weights = refitted(tensor, topics, weights, noise * math.sqrt(documents))
        if total <= _SURE * doubt:
            return topics, weights, np.ones(K)
        sizes = np.maximum(np.sum(topics**2, axis=1), 1e-12)
        return topics, weights, np.minimum(noise / np.maximum(weights * sizes, 1e-12), 1.0)

    # ---- results ---------------------------------------------------------------------------------------------------

    def _estimate(
        self,
        words: NDArray[np.int_],
        topics: Floats,
        weights: Floats,
        carried: NDArray[np.bool_],
        noise: Floats | None = None,
    ) -> dict[str, Quantity]:
        order = np.argsort(-weights, kind="stable")
        topics, weights = topics[order], weights[order]
        common = np.maximum(np.mean(topics, axis=0), 1e-12)
        relevance = topics * np.log(np.maximum(topics, 1e-12) / common)
        axis = Axis.numbered("topic", self.n_components)
        named = columns_axis([self.columns[at] for at in words])
        std: Any = None if noise is None else np.broadcast_to(noise[order][:, None], topics.shape)
        return {
            "topics": Quantity(topics, "share", (axis, named), std),
            "weights": Quantity(weights, "share", (axis,)),
            "relevance": Quantity(relevance, "number", (axis, named)),
            "carried": Quantity(carried[order].astype(np.float64), "diagnostic", (axis,)),
        }


def heard_units(total: float, noise: float, units: float) -> float:
    """How many units a sum of probabilities comes from: all of them, unless it is surely of fewer."""
    return units if abs(total - units) <= _SURE * noise else max(total, noise, 1.0)


def _apart(topics: Floats, noise: Floats, times: float) -> NDArray[np.bool_]:
    """Which topics, and their distances to the nearest, are so many times as large as noise of their entries is."""
    near = np.linalg.norm(topics[:, None, :] - topics[None, :, :], axis=2)
    np.fill_diagonal(near, np.inf)
    error = times * noise * math.sqrt(topics.shape[1])
    return np.asarray((np.min(near, axis=1) > error) & (np.linalg.norm(topics, axis=1) > error))
