"""Figures for monitors in the OpenMetrics format."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.site_service import REQUEST, serve, tell
from helpers.small_studies import make
from zerosum.protocol.messages import Contribute, Propose
from zerosum.site.decisions import Consents
from zerosum.site.metrics import Metrics
from zerosum.site.open_metrics import text

SAMPLE = re.compile(r'(zerosum_site_[a-z_]+)\{(site="[^"]*"(?:,kind="[^"]*")?)\} (\S+)')


def samples(content: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in content.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            found[match[1], match[2]] = float(match[3])
    return found


def test_open_metrics_file_of_serving_site_has_budget_and_counts(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, studies=1), [make("local") for _ in range(2)]
    target = tmp_path / "zerosum.prom"
    for plan in plans:
        tell(service, plan, Propose(plan))
    tell(service, plans[0], Contribute(0, 0, REQUEST))
    with Metrics(tmp_path, service, Consents(tmp_path), every=3600.0, check=lambda: ["a fault"], text_file=target):
        content = target.read_text()
    assert target.stat().st_mode & 0o777 == 0o644
    assert content.endswith("# EOF\n")
    found = samples(content)
    for name, value in (("up", 1), ("studies_open", 1), ("studies_queued", 1), ("faults", 1), ("epsilon_cap", 100)):
        assert found[f"zerosum_site_{name}", 'site="s0"'] == value
    assert 4.9 < found["zerosum_site_epsilon_spent", 'site="s0"'] <= 5.0
    assert found["zerosum_site_answered_total", 'site="s0",kind="Contribution"'] == 1
    assert found["zerosum_site_refused_total", 'site="s0",kind="Busy"'] == 1
    assert samples(target.read_text())["zerosum_site_up", 'site="s0"'] == 0  # after the end
    types = [line.split()[2] for line in content.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_open_metrics_name_of_site_is_escaped() -> None:
    line = next(line for line in text({"site": 'a"b\\c\nd', "serving": True}).splitlines() if "up{" in line)
    assert line == r'zerosum_site_up{site="a\"b\\c\nd"} 1'
