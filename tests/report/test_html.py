"""Results, plans and ledgers in notebooks: named, and nothing in them is markup."""

from __future__ import annotations

from pathlib import Path

from helpers.small_studies import carry_out, make, make_sites
from zerosum.html import paragraphs, table
from zerosum.site.ledger import Ledger


def test_result_plan_and_ledger_have_html_representation(tmp_path: Path) -> None:
    sites, plan = make_sites(tmp_path), make()
    result = carry_out(plan, sites)
    shown = result._repr_html_()
    for word in ("<td>a</td>", "mean", "public digest", "If one person"):
        assert word in shown
    assert "vector_sum" in plan._repr_html_()
    assert "<td>s3</td>" in plan._repr_html_()
    assert "delta 1e-05" in result.report._repr_html_()
    with Ledger.inspect(sites[0].policy.ledger_path) as ledger:
        assert "<td>a, b</td>" in ledger._repr_html_()
        assert "cap 100" in ledger._repr_html_()


def test_html_table_and_paragraphs_escape_markup() -> None:
    wicked = "<script>x</script>"
    assert "<script>" not in table([wicked], [[wicked]], wicked) + paragraphs([wicked])
