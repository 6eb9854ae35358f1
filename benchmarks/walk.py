"""The walk of a study, traced: how often each part is built, read or written, for a mean and for an ICA of three sites.

    python benchmarks/walk.py

Counts, not seconds: they are the same on every machine.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ["ZEROSUM_STATE"] = tempfile.mkdtemp()

import zerosum
from zerosum.algorithms.ica.program import ICAProgram
from zerosum.compute.units import Units
from zerosum.coordinator import conduct
from zerosum.kernel.plan import Plan
from zerosum.protocol import codec
from zerosum.protocol.messages import Propose
from zerosum.site.ledger import Ledger

COUNTS: Counter[str] = Counter()


def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        COUNTS[name] += 1
        return function(*arguments, **named)

    return wrapped


def traced(what: str, run: Callable[[], Any]) -> None:
    COUNTS.clear()
    run()
    print(f"{what}: " + ", ".join(f"{name} {COUNTS[name]}" for name in sorted(COUNTS)))


def main() -> None:
    Plan.__post_init__ = counted("plans built, one of them by the coordinator", Plan.__post_init__)  # type: ignore[method-assign]
    Plan.from_json = staticmethod(counted("plans read by sites", Plan.from_json))  # type: ignore[method-assign]
    Plan.to_json = counted("plans serialised", Plan.to_json)  # type: ignore[method-assign]
    Units.check = counted("data scans", Units.check)  # type: ignore[method-assign]
    Ledger.verify = counted("ledgers verified", Ledger.verify)  # type: ignore[method-assign]
    Ledger.record = counted("ledger records", Ledger.record)  # type: ignore[method-assign]
    codec.build = counted("statistics built by sites", codec.build)  # type: ignore[attr-defined]
    encode = codec.encode

    def weighed(message: Any) -> bytes:
        frame = encode(message)
        if isinstance(message, Propose):
            COUNTS["bytes proposed to a site"] = len(frame)
        return frame

    conduct.encode = weighed  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(50, 3)) for name in "abc"}
    mean = zerosum.algorithms.MeanProgram(columns=("x", "y", "z"), clip=1.0)
    traced("mean, 3 sites", lambda: zerosum.run(mean, tables, epsilon=1.0, delta=1e-5, unit="person"))
    people = {name: Units.from_list(list(rng.laplace(size=(30, 40, 12)))) for name in "def"}
    ica = ICAProgram(columns=tuple(f"v{i}" for i in range(12)), n_components=4, rounds=10)
    traced("ICA, 3 sites", lambda: zerosum.run(ica, people, epsilon=5.0, delta=1e-5))


if __name__ == "__main__":
    main()
