"""The demo: one question under every scheme at the same epsilon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum import demo


def test_demo_every_scheme_has_same_epsilon(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    found = demo.play(2, lambda done, planned: steps.append((done, planned)))
    assert steps == [(done, 2 * len(demo.SCHEMES)) for done in range(1, 2 * len(demo.SCHEMES) + 1)]
    lines = {line.scheme: line for line in found.lines}
    assert list(lines) == list(demo.SCHEMES)
    assert lines["non-private"].measured == pytest.approx(0, abs=1e-9)
    pooled = lines["pooled"].predicted
    for scheme, ratio in {"secure-sum": 4 / 3, "cape-published": 28 / 15, "cape-helper": 28 / 15, "local": 4}.items():
        assert lines[scheme].epsilon == pytest.approx(demo.EPSILON, rel=1e-3)
        assert (lines[scheme].predicted / pooled) ** 2 == pytest.approx(ratio, rel=1e-3)
        assert lines[scheme].measured < 4 * lines[scheme].predicted  # 10 numbers: 4 deviations in mean square is never
    assert np.all(np.isfinite(found.estimate))
    demo.draw(found, tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
