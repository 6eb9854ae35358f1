"""Private topics of documents over sites.

Tested in tests/estimators/test_topics_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from zerosum.estimators.base import DataMark, JointTransformer, Tables
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit

_SMOOTH = 0.05  # of what all topics have in common, in each: no word rules a topic out


class TopicModel(JointTransformer):
    """Private topics over sites whose rows are documents: how often each word of a public list occurs.

    Parameters
    ----------
    n_components : int, default=10
        How many topics to look for.
    vocabulary : sequence of str, optional
        The words the columns stand for; public, and the same at every site. By default the names of the first site's
        columns, or "x0", "x1" and so on.
    n_words : int, default=300
        Where topics come from pairs of words, how many of the vocabulary are kept at most: the most frequent ones, as
        far as they stand above noise, which is paid for.
    length : float, optional
        About how many words a document has, where that is public. From ten on, a round of EM follows the tensor.
    path : "auto", "tensor" or "pairs", default="auto"
        Whether topics come from triples of words (the single topic model) or from pairs. The former where there are at
        most 30 words, or few for so many documents.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the documents of a unit, or a single document. It must be said where sites are
        plain tables, whose rows could be either; `Units` that say whose each row is hold persons. A seeded run protects
        nobody, and takes plain rows for records.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. It is refused unless `data` says that they are nobody's, or
        sites' own policies do.
    data : {"private", "public", "synthetic"}, default="private"
        Whose the data are. Public and synthetic data are nobody's: sites without a policy of their own then take part
        in any study, and their ledgers are thrown away after the run.
    budget : Budget, optional
        A `zerosum.Budget` that several fits share, which refuses what goes beyond it.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The topics, the heaviest first: probabilities of words, zero for those that were not kept.
    weights_ : ndarray of shape (n_components,)
        Their shares of the documents.
    relevance_ : ndarray of shape (n_components, n_features)
        By how much a word speaks for a topic: its probability times the logarithm of how much likelier it is than in
        the mean topic. `top_words` ranks by it.
    kept_ : ndarray of bool, shape (n_features,)
        The words that topics are about.
    carried_ : ndarray of bool, shape (n_components,)
        Whether the budget carries a topic: enough of its words stand above the noise, or it stands apart from others.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, where the first site's table has names.
    privacy_ : PrivacyReport
        Whom the fit protects, against whom, and how well.
    result_ : Result
        The study's whole record.
    notes_ : tuple of str
        What else a reader has to know about the run.

    Notes
    -----
    Fitting again is spending again: each `fit` is a study of its own, with fresh noise, charged to every site's ledger.

    Sites' documents may be sparse matrices, and stay so.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> truth = np.array([[0.5, 0.4, 0.1, 0.0], [0.0, 0.1, 0.4, 0.5]])
    >>> sites = [np.vstack([rng.multinomial(8, topic, size=500) for topic in truth]) for _ in range(3)]
    >>> words = ["river", "lake", "boat", "engine"]
    >>> found = TopicModel(2, vocabulary=words, random_state=0, data="synthetic").fit(sites)
    >>> sorted(found.top_words(2)), found.predict([[0, 0, 2, 3]])[0] == found.predict([[0, 0, 0, 4]])[0]
    ([['engine', 'boat'], ['river', 'lake']], np.True_)
    """

    _algorithm: ClassVar[str] = "topics"

    def __init__(
        self,
        n_components: int = 10,
        *,
        vocabulary: Sequence[str] | None = None,
        n_words: int = 300,
        length: float | None = None,
        path: Literal["auto", "tensor", "pairs"] = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.n_components = n_components
        self.vocabulary = vocabulary
        self.n_words = n_words
        self.length = length
        self.path = path

    def top_words(self, count: int = 10) -> list[list[str]]:
        """The words that speak most for each topic.

        Parameters
        ----------
        count : int, default=10
            How many words for each topic.

        Returns
        -------
        list of list of str
            The words of each topic, the most relevant first.
        """
        check_is_fitted(self, "result_")
        names = self._columns
        return [[names[at] for at in np.argsort(-row, kind="stable")[:count]] for row in self.relevance_]

    def transform(self, X: Any) -> Floats:
        """How likely each topic is to have made each document, by the single topic model.

        Parameters
        ----------
        X : array or sparse matrix of shape (documents, n_features)
            Documents of one site. Nothing about what comes out is private: it is for whoever holds the documents.

        Returns
        -------
        ndarray of shape (documents, n_components)
            Probabilities, which add up to one for each document.
        """
        joint = self._joint(self._own_rows(X))
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The likeliest topic of each document.

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
        """The mean logarithm of a word's probability, over the words of all documents that topics are about.

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
            The log-likelihood of the documents over their number of words; 0 where there are none.
        """
        rows = self._own_rows(X)
        total = float(np.sum(rows[:, self.kept_]))
        return float(np.sum(logsumexp(self._joint(rows), axis=1))) / total if total else 0.0

    def _joint(self, rows: Any) -> Floats:
        """For each document and topic the logarithm of weight times likelihood."""
        known = self.components_[:, self.kept_]
        common = np.maximum(self.weights_ @ known, 1e-6 / known.shape[1])
        smooth = (1 - _SMOOTH) * known + _SMOOTH * common / np.sum(common)
        return np.asarray(rows[:, self.kept_] @ np.log(smooth).T + np.log(np.maximum(self.weights_, 1e-12)))

    # ---- what goes in ------------------------------------------------------------------------------------------

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Any:
        data = doubled(data) if issparse(data) else data
        rows = validate_data(self, data, dtype=np.float64, accept_sparse="csr", reset=first, **checks)
        sparse = bool(issparse(rows))
        if np.any((rows.data if sparse else rows) < 0):
            raise BadData("Negative values in data: rows count words, and no count is below zero")
        return csr_array(rows) if sparse else np.asarray(rows)

    def _units(self, data: Any, *, first: bool) -> Units:
        units = super()._units(data, first=first)
        if self.vocabulary is not None and len(set(self.vocabulary)) < len(self.vocabulary):
            raise BadParameter("a word is twice in the vocabulary")
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

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("n_components", "n_words", "length", "path")}

    def _learn(self, estimate: Estimate) -> None:
        topics, relevance = estimate["topics"], estimate["relevance"]
        place = {name: at for at, name in enumerate(self._columns)}
        kept = np.array([place[name] for name in topics.axes[1].labels], dtype=np.intp)
        self.kept_: NDArray[np.bool_] = np.isin(np.arange(self.n_features_in_), kept)
        self.components_: Floats = self._spread(np.asarray(topics), kept, 0.0)
        self.relevance_: Floats = self._spread(np.asarray(relevance), kept, -np.inf)
        self.weights_: Floats = np.asarray(estimate["weights"])
        self.carried_: NDArray[np.bool_] = np.asarray(estimate["carried"]) > 0
        if not np.all(self.carried_):
            lost = int(np.sum(~self.carried_))
            self._note(f"the budget does not carry {lost} of {len(self.carried_)} topics; see carried_")

    def _spread(self, values: Floats, kept: NDArray[np.intp], elsewhere: float) -> Floats:
        """What is known of the words that were kept, for all of them."""
        table = np.full((len(values), self.n_features_in_), elsewhere)
        table[:, kept] = values
        return table
