"""Topics of documents over sites: from moments of word triples if there are few words, else from word pairs.

Model
-----
A document is a row of D word counts. A topic k = 1..K is a probability vector a_k (D) over words with weight w_k. In
the single topic model all words of a document are independent draws from one topic, so that for two or three words at
different places of a document

    E[pair] = sum_k w_k a_k a_k',        E[triple] = sum_k w_k a_k (x) a_k (x) a_k.

Releases of the path "tensor" (few words and many documents):

1. a histogram of the norms of pairs, whose quantile gives the clips (`PairNorms`);
2. with more than `DENSE` words, the pairs (`PairMoment`); their K leading eigenvectors are the basis of release 3;
3. the triples, in that basis or in full (`TripleMoment`). `topic_factors` decomposes them;
4. for documents of at least ten words, one round of EM (`TopicSums`).

Releases of the path "pairs" (everything else; a heuristic that does not need the model):

1. the presence of each word (`WordPresence`); the words above the noise are kept;
2. pairs of kept words (`WordPairs`), factored into non-negative parts (`nonnegative_factors`);
3. sums of the documents nearest to each part (`TopicSums`).

All else is free post-processing. Reference: Anandkumar et al. 2014 (tensor decompositions for latent variable models).
"""

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
    """Topics of documents. A row holds the counts of the words (columns) in one document.

    The public numbers of words and documents choose one of two paths:

    - "tensor", for few words and many documents, is the single topic model. A histogram of norms gives the clips
      (`norm_share`). Moments of pairs (`pair_share`) and triples of words give the topics, by a decomposition and least
      squares on the simplex. With at most 30 words triples alone are released, since pairs are their margin. Documents
      of at least ten words (`length`, public) have one round of EM at the end (`sum_share`).
    - "pairs", for all else. The words above the noise of a first release are kept, at most `n_words` (`word_share`).
      Pairs of kept words (`pair_share`) are factored into non-negative parts. Sums of the documents nearest to each
      part (`sum_share`) give the frequencies of its words.

    Results:

    - `topics`: probabilities of the kept words;
    - `weights`: shares of the documents;
    - `relevance`: p log(p/mean of p over topics), to rank the words of a topic;
    - `carried`: 1 for topics that the budget supports. On the path "pairs" at least five words are three standard
      deviations above the common level of all topics. On the path "tensor" the norm of the topic and its distance from
      the nearest topic are above three times their noise. No topic is carried if the triples are below their noise
      (documents of fewer than three words have none). After EM its start must also be above twice its noise.
    """

    name: ClassVar[str] = "topics"
    n_components: int = Field(gt=0, le=200)
    n_words: int = Field(default=300, gt=2, le=3000)
    length: float | None = Field(default=None, gt=0, le=1e6)
    path: Path | Literal["auto"] = "auto"
    word_share: float = Field(default=0.12, gt=0, lt=1)
    """Share of the budget for the first release of the path `pairs`, which selects the words."""
    norm_share: float = Field(default=0.04, gt=0, lt=1)
    """Share of the budget for the histogram of norms, on the path `tensor`."""
    pair_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for pairs of words; the default depends on the path."""
    sum_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget for the sums by topic; the default depends on the path."""
    seed: int = Field(default=0, ge=0)
    """Seed of the starts of the decompositions only."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        words = min(len(self.columns), self.n_words) if self.path == "pairs" else len(self.columns)
        if self.n_components > words:
            raise ValueError(f"n_components must be at most n_features = {words} (words), got {self.n_components}")
        if self.path == "tensor" and len(self.columns) > 5000:
            raise ValueError(f"path = 'tensor' takes at most 5000 words, got {len(self.columns)}: use path = 'pairs'")
        if not min(self._shares.values()) > 0:
            names = "word_share and pair_share" if self.chosen == "pairs" else "norm_share, pair_share and sum_share"
            least = min(self._shares, key=lambda name: self._shares[name])
            raise ValueError(
                f"{names} must add up to less than 1, and leave the release {least!r} a share of only "
                f"{self._shares[least]:.3g}: lower one of them"
            )
        return self

    @property
    def chosen(self) -> Path:
        """The path that runs."""
        if self.path != "auto":
            return self.path
        return "tensor" if len(self.columns) <= DENSE else "pairs"

    def resolve(self, facts: PublicFacts) -> Self:
        """Chooses the path. The tensor path needs many documents per word, and fits the single topic model better."""
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
        """Most words of the path "pairs"."""
        return min(self.n_words, len(self.columns))

    @property
    def _shares(self) -> dict[str, float]:
        """Share of each release, in order: as given or by default; the last release gets the rest."""
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
        """Selects the words from the release of word presence.

        Returns
        -------
        words : array (n,)
            Positions of the words with the largest counts.
        weights : array (n,)
            sqrt(log(1/share of documents with the word)), the root of the inverse document frequency; 0 for words that
            may be noise.
        common : array (n,)
            Unit vector along the mean document.

        A document of m different words contributes 1/sqrt(m) for each of them, so the sum of the release over the
        number of documents estimates the mean of sqrt(m).
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
        self, words: NDArray[np.int_], weights: Floats, sums: Floats, profiles: Floats, noise: float
    ) -> dict[str, Quantity]:
        """Topics as precision-weighted means of the released sums and of the factors of the pairs.

        Parameters
        ----------
        words, weights : arrays (n,)
            Positions and weights of the words.
        sums : array (K, n)
            Released sums of documents by topic.
        profiles : array (K, n)
            Factors of the pairs, of norm 1 or zero.
        noise : float
            Standard deviation of the noise of a sum.
        """
        scale = np.sum(sums * profiles, axis=1, keepdims=True)  # profiles have norm 1 or are zero
        guess = np.maximum(scale, 0.0) * profiles
        # variance of the sums around the factors beyond their noise: the error of the factors
        beyond = np.maximum(np.mean((sums - guess) ** 2, axis=1, keepdims=True) - noise**2, 0.05 * noise**2 + 1e-9)
        mixed = (sums * beyond + guess * noise**2) / (beyond + noise**2)
        mass = np.maximum(np.sum(mixed, axis=1), 1e-9)
        base = np.maximum(np.sum(sums, axis=0), 0.0)
        excess = sums - np.outer(mass, base / max(float(np.sum(base)), 1e-300))
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
        """Topics (K, D), weights (K,) and the noise of a topic's entries (K,), from pairs and triples.

        The noise is 1, the largest entry, if the triples are below their noise, as for documents of fewer than three
        words.
        """
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
        # Every topic sums to 1, so the contraction of the tensor with the vector of ones counts the documents.
        ones = np.sum(axes, axis=0)
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
    """Number of units behind a sum of probabilities: all `units`, unless the sum differs by three times its noise."""
    return units if abs(total - units) <= _SURE * noise else max(total, noise, 1.0)


def _apart(topics: Floats, noise: Floats, times: float) -> NDArray[np.bool_]:
    """Topics whose norm and whose distance from the nearest topic exceed `times` the norm of their noise.

    `topics` is (K, D), and `noise` (K,) the standard deviation of an entry.
    """
    near = np.linalg.norm(topics[:, None, :] - topics[None, :, :], axis=2)
    np.fill_diagonal(near, np.inf)
    error = times * noise * math.sqrt(topics.shape[1])
    return np.asarray((np.min(near, axis=1) > error) & (np.linalg.norm(topics, axis=1) > error))
