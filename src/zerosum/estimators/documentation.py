"""Docstring fragments that several estimators share, and the decorator that inserts them.

A docstring holds a placeholder on a line of its own, `%(name)s`, and `documented` replaces it with the fragment of this
name, indented as the placeholder (the idea of nilearn's `fill_doc`). The docs site reads docstrings from the source
files, and `docsite/fragments.py` inserts the same fragments there.
"""

from __future__ import annotations

import re
from textwrap import indent
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")

_PLACEHOLDER = re.compile(r"^( *)%\((\w+)\)s$", re.MULTILINE)

_PARAMETERS = {
    "epsilon": """
epsilon : float, default=1.0
    Bound on the privacy loss of one unit over the whole fit, together with `delta`. A smaller value adds more noise.
""",
    "delta": """
delta : float, default=1e-5
    Probability that the bound `epsilon` does not cover, between 0 and 1. Choose it well below 1 / (number of units).
""",
    "scheme": """
scheme : str or Scheme, default="secure-sum"
    How the noise of the sites combines. The default needs no trusted party. "pooled" and "non-private" need one
    holder who sees all rows.
""",
    "colluders": """
colluders : int, optional
    Number of sites that may collude with the coordinator; by default max(1, ceil(S/3) - 1) of S sites.
""",
    "dropouts": """
dropouts : int, default=0
    Number of sites that may be lost in a round without ending the study.
""",
    "unit": """
unit : "person" or "record", optional
    The protected unit: all rows of one person, or one row. Required for plain tables, whose rows can be either.
    `Units` with owners of rows hold persons. A seeded run, which protects no one, takes plain rows as records.
""",
    "adjacency": """
adjacency : {"replace-one", "add-remove"}, default="replace-one"
    Neighbouring data sets differ by one replaced unit, so that the numbers of units are public, or by one added or
    removed unit, so that they are private.
""",
    "calibration": """
calibration : {"exact", "published"}, default="exact"
    "published" takes the noise of the papers' formulas, for the schemes "pooled", "local", "cape-published" and
    "cape-helper", on data marked public or synthetic. In a training of many steps epsilon is then that of one step, as
    in the capeFM paper. The exact epsilon of the whole study is in `privacy_` either way, and ledgers are charged it.
""",
    "noise": """
noise : {"auto", "gaussian", "laplace"}, default="gaussian"
    Distribution of the noise. "auto" takes the one with the smaller noise for a mean or a histogram, at equal epsilon
    and delta, and Gaussian noise for every other method. Laplace noise spends more of a lifetime budget when many
    studies of the same people add up.
""",
    "policies": """
policies : dict of str to Policy, optional
    Policies by site name. A site without one gets the default policy, with the site's name as the population; its
    ledger lies in the user's state folder.
""",
    "random_state": """
random_state : int, optional
    Seed of a reproducible run, **which protects no one**: the seed removes the noise. It is refused unless `data` or
    the policies of the sites mark the data as public or synthetic. The default None draws noise from the operating
    system.
""",
    "data": """
data : {"private", "public", "synthetic"}, default="private"
    Kind of data. With public or synthetic data a site without a policy accepts any study, and its ledger is deleted
    after the run.
""",
    "budget": """
budget : Budget, optional
    A `zerosum.Budget` that several fits share. A fit beyond it is refused.
""",
    "ranges": """
ranges : dict of str to (float, float), optional
    Public range of each column, by the name of the column: `{"age": (18, 100), "bmi": (10, 60)}`. Values are clamped to
    it. Columns of an array without names are called x0, x1, and so on.
lower, upper : float or array of shape (n_features,), optional
    The same ranges by position instead of name. One number applies to all columns.
""",
    "row_clip": """
clip : float, optional
    Bound on the Euclidean norm of a row; longer rows are shortened to it. With ranges it applies after each column is
    mapped to [-1, 1], and the default has no effect. Without ranges it applies to the units of the data and is
    required, because bounds must not depend on private data. A seeded run without either takes the largest norm and
    adds a note to `notes_`.
""",
    "missing": """
missing : float, str or dict, optional
    Rule for missing values (NaN), for all columns or by column name: a number that replaces them, or "own-rows", the
    mean of the same unit's other rows (the middle of the range if the unit has no value). By default missing values
    are refused.
""",
    "classes": """
classes : sequence, optional
    The classes, which must be public. A seeded run may leave them out; it takes the classes in the data and adds a note
    to `notes_`.
""",
    "evaluate_share": """
evaluate_share : float, default=0
    Share of the budget for a private evaluation. 0 makes no evaluation.
""",
    "checkpoint": """
attempts : int, default=0
    Number of rounds, in all, that may be repeated after a lost connection or a killed process. They are paid for in
    advance by more noise, whether they are used or not.
checkpoint : path, optional
    Folder in which the state of the training is stored. A second fit with the same folder resumes a killed training.
    For a finished one it returns the stored result and spends nothing.
""",
    "response_range": """
response : (float, float)
    Public range of the response. Values are clamped to it. A seeded run may leave it out; it takes the range of the
    data and adds a note to `notes_`.
""",
    "offset_range": """
offset_range : (float, float), optional
    Public range of the offset; required if `fit` gets an offset.
""",
    "regression": """
center, scale : float or array of shape (n_features,), optional
    A typical value of each feature and a typical deviation from it, if these are public knowledge. They save the
    release that `standardise` would buy.
fit_intercept : bool, default=True
    Whether the model has an intercept. Without one it passes through the middle of the ranges, or through the declared
    or released centre, not through 0.
standardise : {"auto", "dp", "none"}, default="auto"
    Whether the mean and the size of each column are released first. "auto" does so if no `center` or `scale` is given
    and the noise of that release is small.
standardise_share : float, default=0.05
    Share of the budget for that release.
clip : float, optional
    Bound on the norm of a row in standardised units; by default the planner's choice.
missing : float, str or dict, optional
    Rule for missing values (NaN) of the features, for all or by column name: a number that replaces them;
    "complete-cases", by which rows with a missing value have weight 0; or "own-rows", the mean of the same unit's other
    rows (the middle of the range if the unit has no value). By default missing values are refused.
measured_in : dict of str to str, optional
    Unit of measurement by column name, for the table of coefficients. The response is called "response".
""",
    "regression_evaluation": """
evaluate_share : float, default=0
    Share of the budget for a histogram that measures the fit; its results are in `evaluation_`. 0 releases none.
hold_out : float, default=0
    Share of units, at most 0.5, that are left out of the fit and used for the evaluation alone. It needs
    `evaluate_share`. Each unit is selected by a hash of its own rows.
""",
}

_PRIVACY = (
    "epsilon",
    "delta",
    "scheme",
    "colluders",
    "dropouts",
    "unit",
    "adjacency",
    "calibration",
    "noise",
    "policies",
)
_RUN = ("random_state", "data", "budget")

_ATTRIBUTES = {
    "feature_model": """
classes_ : ndarray of shape (n_classes,)
    The classes.
features_ : FeatureMap
    The features with all settings.
center_ : ndarray of shape (features,)
    Centre of the features.
""",
    "columns_seen": """
n_features_in_ : int
    Number of columns.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the columns; only if the table of the first site has names.
""",
    "record": """
privacy_ : PrivacyReport
    The guarantee: who is protected, against whom, and the cost at each site.
result_ : Result
    Full record of the study, with all estimates in `result_.estimate`.
notes_ : tuple of str
    Remarks about the run, such as parameters that were taken from the data.
""",
    "coefficients": """
intercept_ : float
    The intercept; 0 if `fit_intercept` is False.
noise_std_ : ndarray of shape (n_features,)
    Standard deviation that privacy adds to each coefficient: the error relative to the same regression on the pooled
    data.
intercept_noise_std_ : float
    The same for the intercept.
population_std_ : ndarray of shape (n_features,)
    Standard error of each coefficient relative to the population, from sampling and privacy together.
p_value_ : ndarray of shape (n_features,)
    Wald's p value of each coefficient, for the population.
wald_p_value_ : float
    P value of the joint test that all coefficients but the intercept are 0 in the population.
table_ : CoefficientTable
    Each coefficient with both standard errors, intervals of 90 % and 95 %, and whether the budget identifies it; with
    methods for ratios, contrasts, predicted margins, standardised coefficients and data frames.
evaluation_ : dict of str to Quantity
    Results of the evaluation; only with `evaluate_share`.
""",
    "quality": """
accuracy_ : float
    Share of correctly classified held-out units; this and the next three only with `evaluate_share`.
accuracy_interval_ : tuple of float
    Interval of 95 % for it, from sampling and privacy.
confusion_ : ndarray of shape (n_classes, n_classes)
    Noisy counts by true and predicted class.
calibration_ : ndarray
    Noisy counts by the probability of the predicted class: all units, and correctly classified units.
""",
}

_TEXTS = {
    "spends": """
Each `fit` is a separate study with new noise, and is charged to the ledger of every site.
""",
    "reproduction": """
A reproducible run on synthetic data. For private data leave `random_state` and `data` out, and set `unit`.
""",
    "fit_x": """
X : list or dict of (rows, n_features) arrays or Units, or one array
    One table per site, by site name. The tables of a list are called "site 0", "site 1", and so on; private data need
    names. One array needs `sites`, except under the schemes "pooled" and "non-private", where one holder has all rows:
    its halves become "site 0" and "site 1".
""",
    "fit_sites": """
sites : array of shape (rows,), optional
    For one array, the name of the site that holds each row.
""",
    "fit_returns": """
Returns
-------
self
    The fitted estimator. If the fit fails, the results of the last fit stay.

Raises
------
ZerosumError
    If a parameter or the data are invalid, or if a site refuses. The message names the parameter or the site.
""",
    "own_rows": """
X : array of shape (rows, n_features)
    Rows of one site. The result is as private as these rows and must stay at the site.
""",
}

# Parameters that `Describe` and `Quantiles` share.
_GROUPED = """
ranges : dict of str to (float, float)
    Public range of each numeric column; values are clamped to it. Columns of an array without names are called x0,
    x1, and so on. Of a data frame only the columns in `ranges` and `levels` are read.
levels : dict of str to sequence, optional
    Public categories of each other column, in order. Another value in the data is refused.
by : str, optional
    The column of the groups; it must be in `levels`.
probabilities : sequence of float, default=(0.25, 0.5, 0.75)
    Probabilities of the quantiles.
whole : sequence of str, optional
    Columns of whole numbers; their quantiles are whole numbers too.
bins : int, optional
    Number of bins in which a column is counted for its quantiles; by default chosen from the noise.
missing : float, str or dict, optional
    Rule for missing values (NaN, None or an empty string), for all columns or by column name: a value that replaces
    them, or "observed", which uses the observed units only. By default missing values are refused.
"""

# A section with its heading, so that a docstring does not repeat the heading with the placeholder below it.
_SECTIONS = {
    "notes": "Notes\n-----" + _TEXTS["spends"],
    "example": "Examples\n--------" + _TEXTS["reproduction"],
    "rows_to": _TEXTS["own_rows"] + "\nReturns\n-------",
    "rows_and_offset_to": _TEXTS["own_rows"]
    + """offset : array of shape (rows,), optional
    Offset of each row; by default 0.

Returns
-------""",
}


def _together(*names: str) -> str:
    """Fragments of parameters or of attributes, one below the other without blank lines."""
    return "".join((_PARAMETERS | _ATTRIBUTES)[name] for name in names).replace("\n\n", "\n")


FRAGMENTS: dict[str, str] = {
    name: text.strip("\n")
    for name, text in {
        **_PARAMETERS,
        **_ATTRIBUTES,
        **_TEXTS,
        **_SECTIONS,
        "grouped": _GROUPED,
        "privacy": _together(*_PRIVACY, *_RUN),
        "rows_and_privacy": _together("ranges", "row_clip", "missing", *_PRIVACY, *_RUN),
        "fitted": _together("columns_seen", "record"),
    }.items()
}


def fill(text: str) -> str:
    """The text with fragments in place of their placeholders.

    Parameters
    ----------
    text : str
        A docstring. An unknown placeholder raises a KeyError.

    >>> print(fill("Parameters\\n    %(budget)s"))
    Parameters
        budget : Budget, optional
            A `zerosum.Budget` that several fits share. A fit beyond it is refused.
    """
    return _PLACEHOLDER.sub(lambda match: indent(FRAGMENTS[match[2]], match[1]), text)


def documented(kind: type[T]) -> type[T]:
    """Class decorator: inserts fragments into the docstrings of the class and of its own methods."""
    if kind.__doc__ is not None:  # None under python -OO
        kind.__doc__ = fill(kind.__doc__)
    for member in vars(kind).values():
        if isinstance(member, FunctionType) and member.__doc__ is not None:
            member.__doc__ = fill(member.__doc__)
    return kind
