"""Deliberate faults, to test that audits and tests detect them.

`FAULTS` are small changes of the source code, applied in this process by `seeded`. Some of them are detectable by an
audit. `programs` are statistics with a sensitivity that is too small. Nothing else in Zerosum uses either.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from zerosum.audit.mistakes.catalogue import FAULTS
from zerosum.audit.mistakes.fault import Fault
from zerosum.audit.mistakes.programs import Mistaken, mistaken
from zerosum.errors import BadParameter

__all__ = ["FAULTS", "MISTAKES", "Fault", "Mistaken", "mistaken", "seeded"]

# Names and descriptions of the faults that `zerosum audit --mistake` accepts.
MISTAKES = {
    "spectral": "the sensitivity of a second moment taken as 1",
    "triangles": "both triangles of a second moment noised, and counted once",
    "colluder": "a colluder's own draw forgotten",
    **{fault.name: fault.wrong for fault in FAULTS.values() if fault.audible},
}


def seeded(name: str) -> AbstractContextManager[None]:
    """Context manager that applies the named fault in this process.

    >>> from zerosum.noise.sampler import Sampler
    >>> with seeded("repeated-draws"):
    ...     twice = Sampler.system().steps(4, 1e6)
    >>> bool(twice[0] == twice[1] and twice[2] == twice[3])
    True
    """
    if name not in FAULTS:
        raise BadParameter(f"unknown fault {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name].seeded()
