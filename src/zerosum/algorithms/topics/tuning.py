"""All tuned constants of topics: name, unit and source of each.

Symbols are those of `topics.program`: D words, K topics a_k with weights w_k.

No privacy depends on these constants: every contribution has norm at most 1 whatever they are. They decide how the
budget is split and how releases are used.

"Chosen by hand" means that no benchmark of the constant is recorded. `benchmarks/topics.py` measures the result of all
of them together (tables in docs/topics.md). The settings of the path "pairs" were chosen on the corpus KOS
(docs/topics.md, design notes). Numerical guards (such as 1e-300 in a denominator) and constants that follow from an
equation stand beside their use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The constants, grouped by the module that uses them. `TUNING` is the only instance."""

    # ---- program: choice of the path -----------------------------------------------------------------------------

    dense_words: int = 30
    """Most words whose triples are all released (4960 numbers at 30); with more, triples are projected on a basis.
    Chosen by hand; no benchmark recorded."""
    tensor_words: int = 500
    """Most words for which `path = "auto"` takes the tensor path. Chosen by hand; no benchmark recorded."""
    documents_per_word: int = 200
    """Least documents per word for the tensor path with more than `dense_words` words. Chosen by hand; no benchmark
    recorded."""
    em_words: int = 10
    """Least words of a document for a round of EM, which needs to recognise the topic of a document. Chosen by hand; no
    benchmark recorded."""

    # ---- program: shares of the budget ---------------------------------------------------------------------------

    pairs_share: float = 0.55
    """Share of the pairs on the path "pairs". Value of the prototype, chosen on KOS."""
    em_share_dense: float = 0.46
    """Share of the round of EM with at most `dense_words` words. Value of the prototype; 0.55 and 0.65 were better on
    most draws and lost a pair of similar topics (docs/topics.md)."""
    em_share: float = 0.65
    """The same with more words. Chosen by hand; no benchmark recorded."""
    tensor_pairs_share: float = 0.35
    """Share of the pairs on the tensor path, of what norms and EM leave. Chosen by hand; no benchmark recorded."""

    # ---- program: words of the path "pairs" ----------------------------------------------------------------------

    word_evidence: float = 3.0
    """Least noisy count of a selected word, in standard deviations of the noise. With 2 the vocabulary of KOS had 150
    words that only noise selects (design notes)."""
    noise_words: int = 10
    """Most words that noise alone may select on average: the threshold rises with the length of the list. Chosen by
    hand; no benchmark recorded."""
    words_least: int = 10
    """Least number of selected words, the largest counts, whatever the noise. Chosen by hand; no benchmark recorded."""
    document_share_limits: tuple[float, float] = (1e-3, 0.9)
    """Limits of the estimated share of documents that contain a word: its logarithm is the weight of the word. Chosen
    by hand; no benchmark recorded."""
    sharpness: float = 40.0
    """Factor of the cosine in the responsibilities: larger assigns a document to its nearest topic alone. Chosen by
    hand; no benchmark recorded."""
    factor_variance_least: float = 0.05
    """Least variance of the error of a factor, over that of the noise of the sums: limits the trust in the factors.
    Chosen by hand; no benchmark recorded."""
    topic_word_evidence: float = 3.0
    """Least excess of a characteristic word of a topic over the level of independent words, in standard deviations of
    noise and sampling. Chosen by hand; no benchmark recorded."""
    topic_words: int = 5
    """Least number of characteristic words of a topic that counts as carried. Chosen on made-up documents without
    topics, of 20 to 200 words: parts of noise had 4 at most in nearly all runs."""
    independent_documents: int = 4000
    """Simulated documents of independent words, for the level above which a word is characteristic. Chosen by hand."""
    rate_steps: int = 4
    """Adjustments of the rates of frequent words in that simulation. Chosen by hand."""

    # ---- program: the tensor path --------------------------------------------------------------------------------

    unclipped_share: float = 0.95
    """Share of documents that the clips do not change. Chosen by hand; no benchmark recorded."""
    random_starts: int = 5
    """Random starts of the least squares fit besides the one from moments. docs/topics.md: over 15 draws with two
    similar topics four starts reduce the mean error from 0.051 to 0.041, and a fifth to 0.032."""
    topic_evidence: float = 3.0
    """Distance of a topic from the nearest one, and its norm, over their noise, for `carried`; also the evidence that
    the triples are more than noise. One-sided, normal: 0.13 per cent."""
    start_evidence: float = 2.0
    """The same for the start of EM. Chosen by hand; no benchmark recorded."""
    common_part: float = 0.02
    """Part of the mean topic that is mixed into each topic before EM, so that no word has probability zero. Chosen by
    hand; no benchmark recorded."""
    em_clip: float = 1.1
    """Clip of a document in EM over the root of the clip of pairs: the norm of a document's word shares is the root of
    that of its pairs, a little more with repeated words. Chosen by hand; no benchmark recorded."""
    em_count_least: float = 0.02
    """Least count of a topic after EM, over the number of documents per topic: counts are divisors. Chosen by hand; no
    benchmark recorded."""

    # ---- factors -------------------------------------------------------------------------------------------------

    factor_starts: int = 3
    """Random starts of `nonnegative_factors`. Chosen by hand; no benchmark recorded."""
    factor_steps: int = 150
    """Steps of `nonnegative_factors`: a fixed number, before they fit the noise. Chosen by hand; no benchmark
    recorded."""
    eigenvalue_floor: float = 0.01
    """Smallest eigenvalue of the pairs in the whitening, over the largest: its root is a divisor. Chosen by hand; no
    benchmark recorded."""
    strength_least: float = 0.3
    """Smallest strength of a part of the white tensor. Exact strengths are w_k^(-1/2) >= 1; the floor limits the weight
    of a noisy part. Chosen by hand; no benchmark recorded."""
    dirichlet: float = 0.5
    """Parameter of the symmetric Dirichlet distribution of random first topics: sparse ones. Chosen by hand; no
    benchmark recorded."""
    even_part: float = 0.02
    """Part of equal probabilities in the first topics of a least squares fit. In the parametrisation by squares a
    probability of zero has no gradient. Chosen by hand; no benchmark recorded."""
    simulated_documents: int = 60_000
    """Most documents that `correct_em_bias` simulates. Chosen by hand; no benchmark recorded."""
    simulated_counts: int = 3_000_000
    """Most counts (documents times words) of that simulation: 24 MB. A limit on memory."""
    bias_rounds: int = 2
    """Corrections for the bias of EM. More would amplify noise where there is a topic too many (docs/topics.md). Chosen
    by hand."""


TUNING = Tuning()
