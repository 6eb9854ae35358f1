"""Why the intervals of a Cox regression may hold less often than they say, from released numbers only.

Intervals count privacy noise, sampling, and usual errors of the model. What they cannot count is named here, by a
public rule: no data are read. docs/cox.md has how often a sentence is there where intervals hold too rarely, and how
often it is there for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from zerosum.kernel.quantity import Quantity

START = "coverage of these intervals may be lower: "

# All thresholds were chosen while looking at the sets of `benchmarks/cox.py` that are named on docs/cox.md.
_LARGE_STEP = 0.4  # root mean square step of the logarithm of the baseline between parts, less its noise
_LARGE_DRIFT = 2.1  # factor of the usual drift of a column's mean over the time
_LARGE_SHARE = 0.27  # share of a column's information that rows of low weight have
_UNKNOWN_SPREAD = 0.2  # low variance of a column that the release allows, over its estimate
_LARGE_DISCORD = 1.5  # mean squared standardised residual of the rounds
_LEAST_EVENTS = 10  # events per column
_MOST_NAMES = 5  # largest number of columns named in a sentence


def interval_caveats(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Reasons, each as a sentence that begins with `START`; none for results of other algorithms.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    """
    if "column_drift" not in estimate:
        return
    names, reasons = estimate["coefficients"].axes[0].labels, estimate["unidentified_reason"].value
    if 2 * np.count_nonzero(reasons) > len(names):
        yield f"{START}most coefficients are not identified, so that their intervals are those of the prior"
    if np.any(unknown := estimate["spread_known"].value < _UNKNOWN_SPREAD):
        columns = column_names(names, unknown)
        yield f"{START}the spread of {columns} is not known at this budget: the range may be far too wide"
    if np.any(drifting := estimate["column_drift"].value > _LARGE_DRIFT):
        yield f"{START}follow-up or effects go with {column_names(names, drifting)}: means drift over the time"
    elif float(estimate["baseline_steps"][0]) > _LARGE_STEP:
        yield f"{START}the baseline differs from the table of exits, as where follow-up depends on the columns"
    if np.any(outweighed := estimate["outweighed"].value > _LARGE_SHARE):
        columns = column_names(names, outweighed)
        yield f"{START}much of what is known about {columns} is with few people, who count less (try a logarithm)"
    if float(estimate["discord"][0]) > _LARGE_DISCORD:
        yield f"{START}the rounds disagree by more than their noise"
    if float(estimate["events"][0]) < _LEAST_EVENTS * len(names):
        yield f"{START}there are fewer than {_LEAST_EVENTS} events for each column"


def column_names(names: Sequence[str], which: NDArray[np.bool_]) -> str:
    """Names of the chosen columns as text, shortened if there are many.

    >>> column_names(["a", "b"], np.array([True, False]))
    "column 'a'"
    """
    chosen = [name for name, keep in zip(names, which, strict=True) if keep]
    more = f" and {len(chosen) - _MOST_NAMES} more" if len(chosen) > _MOST_NAMES else ""
    return ("column " if len(chosen) == 1 else "columns ") + ", ".join(map(repr, chosen[:_MOST_NAMES])) + more
