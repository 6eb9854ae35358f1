"""The seam: whatever carries frames from names to names runs a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from helpers.small_studies import QUESTION, make, make_sites
from zerosum.engines.base import Engine
from zerosum.site.host import answer
from zerosum.study import execute, pin


class Backwards:
    """Brings replies in reverse, and a mangled one from a site that then counts as lost."""

    def __init__(self, sites: list[object], mangled: str = "") -> None:
        self._sites = {site.name: site for site in sites}  # type: ignore[attr-defined]
        self._mangled = mangled

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name in reversed(list(frames)):
            reply = answer(self._sites[name], frames[name])  # type: ignore[arg-type]
            yield name, reply[::-1] if name == self._mangled and b"Contribution" in reply else reply


def test_engine_any_order_of_replies_gives_same_result(tmp_path: Path) -> None:
    results = []
    for kind, folder in ((Backwards, "a"), (None, "b")):
        sites = make_sites(tmp_path / folder)
        plan = pin(make("local", seed=3), sites)
        from zerosum.engines.in_process import InProcess

        engine: Engine = InProcess(sites) if kind is None else kind(list(sites))
        results.append(execute(plan, QUESTION, engine).estimate["mean"].value)
    assert np.array_equal(results[0], results[1])


def test_engine_unreadable_reply_is_loss(tmp_path: Path) -> None:
    from dataclasses import replace

    from zerosum.kernel.view import Coalition

    sites = make_sites(tmp_path)
    plan = pin(replace(make("local"), coalition=Coalition(1, 1)), sites)
    result = execute(plan, QUESTION, Backwards(list(sites), mangled="s2"))
    assert result.participants == (("s0", "s1", "s3"),)
