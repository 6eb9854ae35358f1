"""Topics of documents over sites: from moments of word triples if there are few words, else from word pairs.

Model
-----
A document is a row of D word counts. A topic k = 1..K is a probability vector a_k (D) over words with weight w_k. In
the single topic model all words of a document are independent draws from one topic, so that for two or three words at
different places of a document

    E[pair] = sum_k w_k a_k a_k',        E[triple] = sum_k w_k a_k (x) a_k (x) a_k.

Releases of the path "tensor" (few words and many documents):

1. a histogram of the norms of pairs, whose quantile gives the clips (`PairNorms`);
2. with more than `Tuning.dense_words` words, the pairs (`PairMoment`); their K leading eigenvectors are the basis of
   release 3;
3. the triples, in that basis or in full (`TripleMoment`). `factors` decomposes them;
4. for documents of at least ten words, one round of EM (`TopicSums`).

Releases of the path "pairs" (everything else; a heuristic that does not need the model):

1. the presence of each word (`WordPresence`); the words above the noise are kept;
2. pairs of kept words (`WordPairs`), factored into non-negative parts (`nonnegative_factors`);
3. sums of the documents nearest to each part (`TopicSums`).

All else is free post-processing. Tuned constants are in `tuning`.

References: A. Anandkumar et al., Tensor decompositions for learning latent variable models, JMLR 15, 2014; H. Imtiaz
and A. D. Sarwate, 2018 (capeAGN, with which docs/topics.md compares).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import ndtri

from zerosum.algorithms.mixture.components import shares_above_noise
from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.algorithms.topics.factors import (
    correct_em_bias,
    fit_topics,
    nonnegative_factors,
    on_simplex,
    refine_topics,
    topics_from_moments,
)
from zerosum.algorithms.topics.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.topics import (
    PairMoment,
    PairNorms,
    TopicSums,
    TripleMoment,
    WordPairs,
    WordPresence,
    unit_rows,
)

Path = Literal["tensor", "pairs"]


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
      deviations (of noise and sampling) above what documents of independent words would have. On the path "tensor" the
      norm of the topic and its distance from the nearest topic are above three times their noise. No topic is carried
      if the triples are below their noise (documents of fewer than three words have none). After EM its start must
      also be above twice its noise.

    Parameters
    ----------
    n_components : int
        K.
    n_words : int
        Most words of the path "pairs".
    length : float, optional
        Typical number of words of a document, a public number; it decides whether there is a round of EM.
    path : {"auto", "tensor", "pairs"}
        The path; "auto" chooses by the numbers of words and documents.
    word_share, norm_share, pair_share, sum_share : float
        Shares of the budget; the last release of a path has the rest.
    seed : int
        Public seed.
    columns : tuple of str
        The public vocabulary.
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
        """Refuse more topics than words, too many words for the tensor path, and shares that leave a release
        nothing.
        """
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
        return "tensor" if self._dense else "pairs"

    def resolve(self, facts: PublicFacts) -> Self:
        """Chooses the path. The tensor path needs many documents per word, and fits the single topic model better."""
        if self.path != "auto":
            return self
        words, units = len(self.columns), facts.units or GUESSED_UNITS
        few = self._dense or (words <= TUNING.tensor_words and units >= TUNING.documents_per_word * words)
        return self.model_copy(update={"path": "tensor" if few else "pairs"})

    @property
    def _long(self) -> bool:
        """Whether documents are long enough for a round of EM."""
        return self.length is not None and self.length >= TUNING.em_words

    @property
    def _dense(self) -> bool:
        """Whether all triples of words are released, without a basis."""
        return len(self.columns) <= TUNING.dense_words

    @property
    def _word_limit(self) -> int:
        """Most words of the path "pairs"."""
        return min(self.n_words, len(self.columns))

    @property
    def _shares(self) -> dict[str, float]:
        """Share of each release, in order: as given or by default; the last release gets the rest."""
        if self.chosen == "pairs":
            pairs = TUNING.pairs_share if self.pair_share is None else self.pair_share
            sums = 1 - self.word_share - pairs if self.sum_share is None else self.sum_share
            return {"words": self.word_share, "pairs": pairs, "sums": min(sums, 1 - self.word_share - pairs)}
        usual = TUNING.em_share_dense if self._dense else TUNING.em_share
        sums = 0.0 if not self._long else usual if self.sum_share is None else self.sum_share
        left = 1 - self.norm_share - sums
        pairs = 0.0 if self._dense else TUNING.tensor_pairs_share * left if self.pair_share is None else self.pair_share
        shares = {"norms": self.norm_share, "pairs": pairs, "triples": left - pairs, "sums": sums}
        absent = ({"pairs"} if self._dense else set()) | (set() if self._long else {"sums"})
        return {name: share for name, share in shares.items() if name not in absent}

    @property
    def describe(self) -> str:
        """The path and its releases, for the plan."""
        words = len(self.columns)
        if self.chosen == "pairs":
            return (
                f"{words} words are too many for their triples: at most {self._word_limit} that stand above noise are "
                "kept, pairs of them are factored, and documents are summed by topic"
            )
        means = "all their triples" if self._dense else "pairs, and triples along a basis"
        last = f", then a round of EM, since documents have about {self.length:g} words" if self._long else ""
        return f"{words} words, few enough for the single topic model: {means}{last}"

    # ---- requests --------------------------------------------------------------------------------------------------

    def _word_pairs(self, words: Floats, weights: Floats) -> WordPairs:
        """The statistic of pairs of selected words.

        Parameters
        ----------
        words : array of shape (n,)
            Positions of the words.
        weights : array of shape (n,)
            Root of the inverse document frequency; 0 leaves a word out.
        """
        return WordPairs(columns=len(self.columns), words=words, weights=weights)

    def _root_sums(self, words: Floats, weights: Floats, scores: Floats) -> TopicSums:
        """The statistic of sums of documents by topic on the path "pairs".

        Parameters
        ----------
        words, weights : array of shape (n,)
            As for `_word_pairs`.
        scores : array of shape (n, K)
            A column for each topic; responsibilities are a softmax of the products with a document.
        """
        K = self.n_components
        return TopicSums(
            columns=len(self.columns), words=words, weights=weights, scores=scores, offsets=np.zeros(K), kind="roots"
        )

    def _em_sums(self, logs: Floats, offsets: Floats, clip: float) -> TopicSums:
        """The statistic of the round of EM.

        Parameters
        ----------
        logs : array of shape (D, K)
            Logarithms of the probabilities of words by topic.
        offsets : array of shape (K,)
            Logarithms of the weights.
        clip : float
            Norm at which a document's word shares are clipped.
        """
        return TopicSums(columns=len(self.columns), scores=logs, offsets=offsets, kind="shares", clip=clip)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Templates of the releases of the chosen path, with the share of each."""
        D, K = len(self.columns), self.n_components
        if self.chosen == "pairs":
            first, ones = np.arange(self._word_limit, dtype=np.float64), np.ones(self._word_limit)
            made: dict[str, BoundedStatistic] = {
                "words": WordPresence(columns=D),
                "pairs": self._word_pairs(first, ones),
                "sums": self._root_sums(first, ones, np.zeros((self._word_limit, K))),
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
        """The releases of the chosen path."""
        if self.chosen == "pairs":
            return (yield from self._run_pairs())
        return (yield from self._run_tensor())

    # ---- which words go together -----------------------------------------------------------------------------------

    def _run_pairs(self) -> Program:
        """The path "pairs": words, pairs of words, sums of documents by topic."""
        shares = self._shares
        release = yield PrivateSum(WordPresence(columns=len(self.columns)), shares["words"])
        # Under add-remove the number of documents is not public. A word that is in every document of about 80 different
        # words has the sum n/9; this guess only scales weights and the level of independent words.
        units = release.units or max(float(np.max(release.value)), 1.0) * 9
        words, weights, common, present = self._vocabulary(release, units)
        pairs = self._word_pairs(words, weights)
        release = yield PrivateSum(pairs, shares["pairs"])
        there = weights > 0
        parts = np.zeros((len(words), self.n_components))
        parts[there] = nonnegative_factors(
            pairs.split(release.value)[np.ix_(there, there)], self.n_components, self.seed
        )
        # Columns of `parts` are topics up to their size; rows of norm 1 are compared with documents by their cosine.
        profiles = (parts / np.maximum(np.linalg.norm(parts, axis=0), 1e-300)).T
        # The direction common to all documents does not separate topics, so it is projected out.
        apart = profiles - np.outer(profiles @ common, common)
        apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-300)
        sums = self._root_sums(words, weights, TUNING.sharpness * apart.T)
        release = yield PrivateSum(sums, shares["sums"])
        by_topic = sums.split(release.value)[:, there]
        chosen = words[there].astype(int)
        expected = independent_sums(
            present[there], weights[there], sums.scores[there], units, np.sum(by_topic, axis=0), self.seed
        )
        return self._combine_sums(chosen, weights[there], by_topic, profiles[:, there], release.noise_std, expected)

    def _vocabulary(self, release: Release, units: float) -> tuple[Floats, Floats, Floats, Floats]:
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
        shares : array (n,)
            Estimated share of the documents that contain each word.

        A document of m different words contributes 1/sqrt(m) for each of them, so the sum of the release over the
        number of documents estimates the mean of sqrt(m).

        Parameters
        ----------
        release : Release
            A release of `WordPresence`, shape (D,).
        units : float
            Number of documents.
        """
        presence, noise = release.value, release.noise_std
        order = np.argsort(-presence, kind="stable")[: self._word_limit]
        top = presence[order]
        # Of n empty words n P(z > t) pass the threshold t on average: t is the normal quantile at which that is
        # `noise_words`, and at least `word_evidence`.
        threshold = max(TUNING.word_evidence, -float(ndtri(min(TUNING.noise_words / len(presence), 0.5))))
        sure = top > threshold * noise
        sure[: max(self.n_components, TUNING.words_least)] = True
        different = max(float(np.sum(presence)) / units, 1.0)
        shares = np.clip(top * different / units, *TUNING.document_share_limits)
        weights = np.where(sure, np.sqrt(np.log(1 / shares)), 0.0)
        common = np.maximum(top, 0.0) * weights
        return order.astype(np.float64), weights, common / max(float(np.linalg.norm(common)), 1e-300), shares

    def _combine_sums(
        self,
        words: NDArray[np.int_],
        weights: Floats,
        sums: Floats,
        profiles: Floats,
        noise: float,
        expected: tuple[Floats, Floats],
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
        expected : pair of arrays (K, n)
            What the sums would be if words were independent, and the sampling variance (`independent_sums`).
        """
        scale = np.sum(sums * profiles, axis=1, keepdims=True)  # profiles have norm 1 or are zero
        guess = np.maximum(scale, 0.0) * profiles
        # Variance of the sums around the factors beyond their noise: the error of the factors. Sums and factors are
        # then averaged with weights inverse to their variances (empirical Bayes).
        least = TUNING.factor_variance_least * noise**2 + 1e-9
        beyond = np.maximum(np.mean((sums - guess) ** 2, axis=1, keepdims=True) - noise**2, least)
        mixed = (sums * beyond + guess * noise**2) / (beyond + noise**2)
        mass = np.maximum(np.sum(mixed, axis=1), 1e-9)
        # Documents are assigned to a part because they contain its words, so that its words stand out in the sums of
        # any part, of noise too. What counts is the excess over documents of independent words.
        level, variance = expected
        level = level * (np.sum(sums, axis=1, keepdims=True) / np.maximum(np.sum(level, axis=1, keepdims=True), 1e-9))
        doubt = np.sqrt(noise**2 + variance)
        stands = np.sum(sums - level > TUNING.topic_word_evidence * doubt, axis=1)
        # The released sums are of normalised sqrt(count) weight: without the weight they are sums of roots of counts.
        topics = np.maximum(mixed, 0.0) / weights
        topics /= np.maximum(np.sum(topics, axis=1, keepdims=True), 1e-300)
        return self._estimate(words, topics, mass / np.sum(mass), stands >= TUNING.topic_words)

    # ---- the single topic model ------------------------------------------------------------------------------------

    def _run_tensor(self) -> Program:
        """The path "tensor": norms, moments, and for long documents a round of EM."""
        D, shares = len(self.columns), self._shares
        norms = PairNorms(columns=D)
        release = yield PrivateSum(norms, shares["norms"])
        below = np.cumsum(shares_above_noise(release.value, release.noise_std))
        # The upper edge of the bin that holds the quantile, so that at most the planned share is clipped.
        clip = float(
            norms.edges[1 + min(int(np.searchsorted(below, TUNING.unclipped_share * below[-1])), norms.bins - 1)]
        )
        units = release.units or max(float(np.sum(release.value)), 1.0)
        topics, weights, noise = yield from self._decompose(clip, units)
        carried = _above_noise(topics, noise, TUNING.topic_evidence)
        if self._long:
            started = _above_noise(topics, noise, TUNING.start_evidence)
            common = weights @ topics
            part = TUNING.common_part
            logs = np.log(np.maximum((1 - part) * topics + part * common, 1e-9)).T
            sums = self._em_sums(logs, np.log(np.maximum(weights, 1e-3)), min(1.0, TUNING.em_clip * math.sqrt(clip)))
            release = yield PrivateSum(sums, shares["sums"])
            # A document contributes shares of words with sum 1, times its responsibilities: the sum over words counts
            # the documents of a topic.
            by_topic = sums.split(release.value)
            counts = np.maximum(np.sum(by_topic, axis=1), TUNING.em_count_least * units / self.n_components)
            by_word = on_simplex(by_topic / counts[:, None])
            topics, weights = correct_em_bias(
                lambda simulated: sums.split(sums.total(Units.from_rows(simulated))),
                by_word,
                counts / np.sum(counts),
                round(self.length or TUNING.em_words),
            )
            noise = np.minimum(sums.clip * release.noise_std / counts, 1.0)
            carried = started & _above_noise(topics, noise, TUNING.topic_evidence)
        return self._estimate(np.arange(D), topics, weights, carried, noise)

    def _decompose(self, clip: float, units: float) -> Generator[Request, Release, tuple[Floats, Floats, Floats]]:
        """Topics (K, D), weights (K,) and the noise of a topic's entries (K,), from pairs and triples.

        The noise is 1, the largest entry, if the triples are below their noise, as for documents of fewer than three
        words.

        Parameters
        ----------
        clip : float
            Clip of pairs, from the histogram of norms; triples are clipped at its power 3/2.
        units : float
            Number of documents, public or released.

        Returns
        -------
        topics : array of shape (K, D)
        weights : array of shape (K,)
        noise : array of shape (K,)
        """
        D, K, shares = len(self.columns), self.n_components, self._shares
        pairs, level, axes = None, np.inf, np.eye(D)
        if not self._dense:
            moment = PairMoment(columns=D, clip=clip)
            release = yield PrivateSum(moment, shares["pairs"])
            pairs = moment.split(release.value)
            spread = clip * release.noise_std
            # Every topic sums to 1, so all pairs together count the documents of at least two words. A sum over D^2
            # entries in isometric coordinates has D times the noise of one.
            documents = documents_behind(float(np.sum(pairs)), spread * D, units)
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
        documents = max(total, 1.0) if self._dense else documents_behind(total, doubt, units)
        tensor, noise = tensor / documents, spread / documents
        # Topics sum to 1, so the pairs are the margin of all triples.
        margin = np.sum(tensor, axis=2) if pairs is None else pairs
        topics, weights = topics_from_moments(margin, tensor, axes, K, self.seed)
        starts = TUNING.random_starts if self._dense else 0
        topics, weights = fit_topics(tensor, axes, topics, weights, pairs, (noise / level) ** 2, starts)
        if self._dense:
            topics, weights = refine_topics(tensor, topics, weights, noise * math.sqrt(documents))
        if total <= TUNING.topic_evidence * doubt:
            return topics, weights, np.ones(K)
        # A change d of topic k moves the tensor by about w_k |a_k|^2 d (two of its three factors stay), so the noise of
        # the tensor is divided by that.
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
        """Topics in order of weight, with relevance and axes.

        Parameters
        ----------
        words : array of shape (n,)
            Positions of the words.
        topics : array of shape (K, n)
            Probabilities; rows add up to 1.
        weights : array of shape (K,)
            Shares of the documents.
        carried : bool array of shape (K,)
            Topics that the budget supports.
        noise : array of shape (K,), optional
            Standard deviation of an entry of each topic; None on the path "pairs", where it is not known.
        """
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


def independent_sums(
    shares: Floats, weights: Floats, scores: Floats, units: float, totals: Floats, seed: int
) -> tuple[Floats, Floats]:
    """Sums of documents by topic if all words were independent of each other, and the variance of their difference to
    the sums of `units` such documents.

    Documents are simulated with public random numbers from released numbers: a word's count is Poisson with the rate
    that gives its share of documents. For words in nearly all documents the share does not give the rate; there it is
    adjusted until the simulated sum over topics agrees with the released one.

    Parameters
    ----------
    shares : array of shape (n,)
        Share of the documents that contain each word.
    weights : array of shape (n,)
        Weight of each word.
    scores : array of shape (n, K)
        A column for each topic.
    units : float
        Number of documents.
    totals : array of shape (n,)
        Released sums over all topics.
    seed : int
        Public seed.

    Returns
    -------
    sums, variance : arrays of shape (K, n)
    """
    statistic = TopicSums(
        columns=len(weights),
        words=np.arange(len(weights), dtype=np.float64),
        weights=weights,
        scores=scores,
        offsets=np.zeros(scores.shape[1]),
        kind="roots",
    )
    count = TUNING.independent_documents
    each = units / count
    rates = -np.log1p(-shares)
    frequent = shares >= TUNING.document_share_limits[1]
    for _ in range(TUNING.rate_steps if np.any(frequent) else 0):
        rows = unit_rows(np.random.default_rng(seed).poisson(rates, (count, len(rates))).astype(np.float64), weights)
        # The root of a count enters, so that a rate changes with the square of its sum.
        ratio = np.maximum(totals, 0.0) / np.maximum(each * np.sum(rows, axis=0), 1e-9)
        rates = np.where(frequent, np.clip(rates * np.clip(ratio, 0.5, 2.0) ** 2, 1.0, 1e4), rates)
    rows = unit_rows(np.random.default_rng(seed + 1).poisson(rates, (count, len(rates))).astype(np.float64), weights)
    taken = statistic.responsibilities(rows)
    # The variance of a sum over independent documents is at most the sum of squares. That of the simulated sum is
    # `each` times as large.
    squares = each * ((taken**2).T @ rows**2)
    return each * (taken.T @ rows), squares * (1 + each)


def documents_behind(total: float, noise: float, units: float) -> float:
    """Number of documents behind a sum of probabilities: all `units`, unless the sum differs by three times its noise.

    Parameters
    ----------
    total, noise : float
        The released sum, and the standard deviation of its noise.
    units : float
        Number of units, public or released. Documents that are too short contribute nothing, so there may be fewer.
    """
    return units if abs(total - units) <= TUNING.topic_evidence * noise else max(total, noise, 1.0)


def _above_noise(topics: Floats, noise: Floats, times: float) -> NDArray[np.bool_]:
    """Topics whose norm and whose distance from the nearest topic exceed `times` the norm of their noise.

    Parameters
    ----------
    topics : array of shape (K, D)
        Noisy topics.
    noise : array of shape (K,)
        Standard deviation of an entry.
    times : float
        Factor on the norm of the noise, sqrt(D) times that of an entry.
    """
    near = np.linalg.norm(topics[:, None, :] - topics[None, :, :], axis=2)
    np.fill_diagonal(near, np.inf)
    error = times * noise * math.sqrt(topics.shape[1])
    return np.asarray((np.min(near, axis=1) > error) & (np.linalg.norm(topics, axis=1) > error))
