"""What a steward reads of a ledger: who asked what, when, of which columns, what it cost, what is left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.kernel.accountant import epsilon, mu_for
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Spend, Total, left_under
from zerosum.site.ledger_summary import in_words, statement


def test_ledger_statement_has_question_of_study(tmp_path: Path) -> None:
    sites, plan = make_sites(tmp_path), make()
    carry_out(plan, sites)
    with Ledger.inspect(sites[0].policy.ledger_path) as ledger:
        record = statement(ledger)
    (study,) = record["studies"]
    assert study["asked"]["columns"] == ["a", "b"]
    assert study["asked"]["bounds"] == {"clip": 1.0}
    assert study["asked"]["public_digest"] == plan.public_digest
    assert study["asked"]["sites"] == ["s0", "s1", "s2", "s3"]
    assert study["epsilon"] == record["epsilon"] == pytest.approx(5.0, rel=1e-6)
    assert record["cap"] == {"epsilon": 100.0, "delta": 1e-5}
    assert in_words(plan)["user"] == study["asked"]["user"]


def test_ledger_question_is_written_once_per_study(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.sqlite", Account("p", "person", "replace-one")) as ledger:
        for study, round in (("a", 0), ("a", 1), ("b", 0)):
            spend = Spend(study, round, 0, "person", "m", 1.0, 0.1, "aa")
            ledger.record(spend, Cap(3.0, 1e-6), "aa", partial(dict, algorithm=study))
        assert [entry.asked for entry in ledger.entries()] == [{"algorithm": "a"}, None, {"algorithm": "b"}]
    with Ledger.inspect(tmp_path / "l.sqlite") as ledger:
        record = statement(ledger)
    assert [(line["study"], line["entries"], line["asked"]) for line in record["studies"]] == [
        ("a", 2, {"algorithm": "a"}),
        ("b", 1, {"algorithm": "b"}),
    ]
    assert record["delta"] == 1e-6  # the cap's own


@pytest.mark.parametrize("spent", [0.0, 0.3, 1.0, 2.9, 3.0])
def test_left_under_cap_fits_exactly(spent: float) -> None:
    cap, total = Cap(3.0, 1e-6), Total()
    if spent:
        mu = mu_for(spent, cap.delta)
        total = total.plus([(Spend("s", 0, 0, "person", "m", 1.0, mu, "aa"), mu)])
    left = left_under(total, cap)
    more = mu_for(left, cap.delta) if left > 1e-6 else 0.0
    both = (float(total.squares) + more**2) ** 0.5
    assert epsilon(both, cap.delta) == pytest.approx(3.0, rel=1e-6)
    assert left >= 3.0 - spent - 1e-3  # more than the difference


def test_ledger_read_only_copy_is_read_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site, *_), plan = make_sites(tmp_path / "site"), make()
    carry_out(plan, [site, *_])
    copy = tmp_path / "copy" / "ledger.sqlite"
    copy.parent.mkdir()
    source = site.policy.ledger_path
    copy.write_bytes(source.read_bytes())
    log = source.with_name(source.name + "-wal")
    if log.exists():
        copy.with_name(copy.name + "-wal").write_bytes(log.read_bytes())
    monkeypatch.setattr("os.access", lambda *_: False)  # as for an auditor; tests may run as root
    before = sorted((path.name, path.stat().st_mtime_ns) for path in copy.parent.iterdir())
    with Ledger.inspect(copy) as ledger:
        assert ledger.unwitnessed
        assert ledger.verify() == 1
        assert statement(ledger)["newest"] is None
        assert ledger.path == copy
    with Ledger.inspect(copy, counter=site.policy.counter_path) as ledger:
        assert not ledger.unwitnessed
        assert len(ledger.entries()) == 1
    assert sorted((path.name, path.stat().st_mtime_ns) for path in copy.parent.iterdir()) == before
