"""Seeded faults: small changes of the source code that make the guarantee false, and the test that catches each.

`FAULTS` is the catalogue, `guards.GUARDS` names the test that catches each fault. `python -m mutations`, in the folder
`tests`, seeds them one by one and runs their guards. Nothing of this is in the installed package.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from mutations.catalogue import FAULTS
from mutations.fault import Fault
from zerosum.errors import BadParameter

__all__ = ["FAULTS", "Fault", "seeded"]


def seeded(name: str) -> AbstractContextManager[None]:
    """Context manager that applies the named fault in this process.

    >>> from zerosum.noise.sampler import Sampler
    >>> with seeded("repeated-draws"):
    ...     draws = Sampler.system().steps(4, 1e6)
    >>> bool(draws[0] == draws[1] and draws[2] == draws[3])
    True
    """
    if name not in FAULTS:
        raise BadParameter(f"unknown fault {name!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name].seeded()
