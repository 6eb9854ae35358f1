"""Published methods as programs: they run under any scheme, in study files and between machines, charged exactly.

`zerosum.algorithms.find` loads them by name through the entry points `zerosum.algorithms` of this distribution. Our own
programs for the same questions need less noise; docs/papers.md compares them.
"""

from __future__ import annotations

from zerosum.algorithms.program import Algorithm
from zerosum.papers.programs.federated import FLDPProgram
from zerosum.papers.programs.ica import CapeDJICAProgram
from zerosum.papers.programs.network import CapeNetworkProgram
from zerosum.papers.programs.pca import CapePCAProgram
from zerosum.papers.programs.regression import CapeFMProgram
from zerosum.papers.programs.tensor import CapeAGNMixtureProgram, CapeAGNTopicsProgram

PROGRAMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        CapePCAProgram,
        CapeFMProgram,
        CapeDJICAProgram,
        CapeAGNMixtureProgram,
        CapeAGNTopicsProgram,
        CapeNetworkProgram,
        FLDPProgram,
    )
}

__all__ = [
    "PROGRAMS",
    "CapeAGNMixtureProgram",
    "CapeAGNTopicsProgram",
    "CapeDJICAProgram",
    "CapeFMProgram",
    "CapeNetworkProgram",
    "CapePCAProgram",
    "FLDPProgram",
]
