"""Guarantees made wrong on purpose: an alarm that never rings proves nothing.

`FAULTS` are faults of the code, each a few words that differ, applied in this process by `seeded`; some of them an
audit can hear. `programs` are statistics that claim too little. Nothing else in Zerosum uses either.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from zerosum.audit.mistakes.catalogue import FAULTS
from zerosum.audit.mistakes.fault import Fault
from zerosum.audit.mistakes.programs import Mistaken, mistaken
from zerosum.errors import BadParameter

__all__ = ["FAULTS", "MISTAKES", "Fault", "Mistaken", "mistaken", "seeded"]

# what `zerosum audit --mistake` takes
MISTAKES = {
    "spectral": "the sensitivity of a second moment taken as 1",
    "triangles": "both triangles of a second moment noised, and counted once",
    "colluder": "a colluder's own draw forgotten",
    **{fault.name: fault.wrong for fault in FAULTS.values() if fault.audible},
}


def seeded(name: str) -> AbstractContextManager[None]:
    """The named fault, in this process, until the block ends.

    >>> from zerosum.noise.sampler import Sampler
    >>> with seeded("repeated-draws"):
    ...     twice = Sampler.system().steps(4, 1e6)
    >>> bool(twice[0] == twice[1] and twice[2] == twice[3])
    True
    """
    if name not in FAULTS:
        raise BadParameter(f"unknown fault {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name].seeded()
