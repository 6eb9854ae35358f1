"""Private topics of documents over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted, validate_data

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units, doubled
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import JointTransformer
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import WORDS, Constraint, optional

# Share of the mean topic that is mixed into each topic before likelihoods are computed, so that no word has
# probability zero. Chosen by hand; no benchmark recorded.
_SMOOTHING = 0.05


@documented
@dataclass(eq=False, repr=False)
class TopicModel(JointTransformer):
    """Private topics over sites. A row is a document: the count of each word of a public vocabulary.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    vocabulary : sequence of str, optional
        Words of the columns; public, and the same at every site. By default the column names of the first site, or
        "x0", "x1", and so on.
    n_words : int, default=300
        Largest number of words that topics are about, if topics come from pairs of words: the most frequent words, as
        far as they are above the noise. A release selects them.
    length : float, optional
        Typical number of words of a document, if it is public. From ten on, a round of EM follows the tensor.
    path : {"auto", "tensor", "pairs"}, default="auto"
        Whether topics come from triples of words (the single topic model) or from pairs. "auto" takes "tensor" for at
        most 30 words, or for few words relative to the number of documents.
    word_share : float, default=0.12
        Share of the budget for the selection of words.
    norm_share : float, default=0.04
        Share of the budget for the histogram of norms, with path "tensor".
    pair_share : float, optional
        Share of the budget for the pairs of words; by default that of the path.
    sum_share : float, optional
        Share of the budget for the sums by topic; by default that of the path.
    seed : int, default=0
        Seed of the starts of decompositions. It does not affect privacy.
    %(privacy)s

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Topics: probabilities of words, the topic with the largest weight first; zero for words that were not selected.
    noise_std_ : ndarray of shape (n_components, n_features)
        Standard deviation that privacy adds to each probability; zero for words that were not selected. Only if the
        path estimates it.
    weights_ : ndarray of shape (n_components,)
        Shares of the topics among the documents.
    relevance_ : ndarray of shape (n_components, n_features)
        Relevance of a word for a topic: its probability times the logarithm of the ratio to its probability in the mean
        topic. `top_words` ranks by it.
    kept_ : ndarray of bool, shape (n_features,)
        Whether a word was selected.
    carried_ : ndarray of bool, shape (n_components,)
        Whether the budget supports a topic: enough of its words are above the noise, or it is apart from the others.
    %(fitted)s

    %(notes)s

    Documents may be sparse matrices; they are not converted to dense ones.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> truth = np.array([[0.5, 0.4, 0.1, 0.0], [0.0, 0.1, 0.4, 0.5]])
    >>> sites = [np.vstack([rng.multinomial(8, topic, size=500) for topic in truth]) for _ in range(3)]
    >>> words = ["river", "lake", "boat", "engine"]
    >>> found = TopicModel(2, vocabulary=words, random_state=0, data="synthetic").fit(sites)
    >>> sorted(found.top_words(2)), found.predict([[0, 0, 2, 3]])[0] == found.predict([[0, 0, 0, 4]])[0]
    ([['engine', 'boat'], ['river', 'lake']], np.True_)
    """

    _algorithm: ClassVar[str] = "topics"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **JointTransformer._constraints,
        "vocabulary": optional(WORDS),
    }

    n_components: int = 10
    _: KW_ONLY
    vocabulary: Sequence[str] | None = None
    n_words: int = 300
    length: float | None = None
    path: Literal["auto", "tensor", "pairs"] = "auto"
    word_share: float = 0.12
    norm_share: float = 0.04
    pair_share: float | None = None
    sum_share: float | None = None
    seed: int = 0

    def top_words(self, count: int = 10) -> list[list[str]]:
        """The most relevant words of each topic.

        Parameters
        ----------
        count : int, default=10
            Number of words for each topic.

        Returns
        -------
        list of list of str
            The words of each topic, the most relevant first.
        """
        check_is_fitted(self, "result_")
        names = self._columns
        return [[names[at] for at in np.argsort(-row, kind="stable")[:count]] for row in self.relevance_]

    def transform(self, X: Any) -> Floats:
        """Posterior probability of each topic for each document, by the single topic model.

        Parameters
        ----------
        X : array or sparse matrix of shape (documents, n_features)
            Documents of one site. The result is as private as these documents and must stay at the site.

        Returns
        -------
        ndarray of shape (documents, n_components)
            Probabilities; those of a document add up to one.
        """
        joint = self._joint(self._own_rows(X))
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most probable topic of each document.

        Parameters
        ----------
        X : array or sparse matrix of shape (documents, n_features)
            Documents of one site.

        Returns
        -------
        ndarray of shape (documents,)
            Positions in `components_`.
        """
        return np.asarray(np.argmax(self._joint(self._own_rows(X)), axis=1))

    def score(self, X: Any, y: object = None) -> float:
        """Mean logarithm of the probability of a word, over the selected words of all documents.

        On private documents it is not protected and must not leave the site.

        Parameters
        ----------
        X : array or sparse matrix of shape (documents, n_features)
            Documents of one site.
        y : None
            Ignored.

        Returns
        -------
        float
            Log-likelihood of the documents over their number of words; 0 if there are no words.
        """
        rows = self._own_rows(X)
        # The number of words, so that long and short documents compare.
        total = float(np.sum(rows[:, self.kept_]))
        return float(np.sum(logsumexp(self._joint(rows), axis=1))) / total if total else 0.0

    def _joint(self, rows: Any) -> Floats:
        """Logarithm of weight times likelihood (documents, n_components)."""
        known = self.components_[:, self.kept_]
        # The mean topic; its floor keeps a word finite that no topic has.
        common = np.maximum(self.weights_ @ known, 1e-6 / known.shape[1])
        smooth = (1 - _SMOOTHING) * known + _SMOOTHING * common / np.sum(common)
        return np.asarray(rows[:, self.kept_] @ np.log(smooth).T + np.log(np.maximum(self.weights_, 1e-12)))

    # ---- the data ---------------------------------------------------------------------------------------------

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Any:
        # As doubles before the validation: sums of duplicate entries in short integers could wrap around.
        data = doubled(data) if issparse(data) else data
        rows = validate_data(self, data, dtype=np.float64, accept_sparse="csr", reset=first, **checks)
        sparse = bool(issparse(rows))
        if np.any((rows.data if sparse else rows) < 0):
            raise BadData("Negative values in data: rows are counts of words")
        return csr_array(rows) if sparse else np.asarray(rows)

    def _units(self, data: Any, *, first: bool) -> Units:
        units = super()._units(data, first=first)
        if self.vocabulary is not None and len(self.vocabulary) != units.columns:
            raise BadParameter(f"the vocabulary has {len(self.vocabulary)} words, and the data {units.columns} columns")
        return units

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    @property
    def _columns(self) -> tuple[str, ...]:
        return super()._columns if self.vocabulary is None else tuple(map(str, self.vocabulary))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _learn(self, estimate: Estimate) -> None:
        topics, relevance = estimate["topics"], estimate["relevance"]
        place = {name: at for at, name in enumerate(self._columns)}
        # The release is over the words that were selected; results are over all words of the vocabulary.
        places = np.array([place[name] for name in topics.axes[1].labels], dtype=np.intp)
        self.kept_: NDArray[np.bool_] = np.isin(np.arange(self.n_features_in_), places)
        self.components_: Floats = self._spread(np.asarray(topics), places, 0.0)
        if topics.std is not None:
            self.noise_std_: Floats = self._spread(np.asarray(topics.std), places, 0.0)
        # -inf sorts words that were not selected to the end.
        self.relevance_: Floats = self._spread(np.asarray(relevance), places, -np.inf)
        self.weights_: Floats = np.asarray(estimate["weights"])
        self.carried_: NDArray[np.bool_] = np.asarray(estimate["carried"]) > 0
        if not np.all(self.carried_):
            lost = int(np.sum(~self.carried_))
            self._note(f"the budget does not support {lost} of {len(self.carried_)} topics; see carried_")

    def _spread(self, values: Floats, places: NDArray[np.intp], elsewhere: float) -> Floats:
        """A table over the selected words `places`, extended to all words with the value `elsewhere`."""
        table = np.full((len(values), self.n_features_in_), elsewhere)
        table[:, places] = values
        return table
