"""What stands on the pages: for a coordinator, for a site, and whatever others call their studies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.small_studies import carry_out, make, make_sites
from helpers.watch_page import HOSTILE, coordinated, hostile, parsed
from zerosum import run
from zerosum.algorithms import build
from zerosum.cli.site import site_init
from zerosum.errors import BadInput
from zerosum.report.record import privacy_report
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.ledger_records import Spend
from zerosum.site.policy import Policy
from zerosum.watch import plans
from zerosum.watch.coordinator_pages import CoordinatorPages
from zerosum.watch.layout import Page, document
from zerosum.watch.outcomes import outcome
from zerosum.watch.site_pages import SitePages


def drawn(page: Page | None) -> str:
    assert page is not None
    return document(page, "/room/", "", "title")


def section(page: Page | None, id: str) -> str:
    assert page is not None
    return parsed(next(each.body for each in page.sections if each.id == id)).words


@pytest.fixture
def home(tmp_path: Path) -> Path:
    site_init(tmp_path / "s0", json_=True)
    return tmp_path / "s0"


def test_watch_page_of_coordinator_follows_study_to_result(tmp_path: Path) -> None:
    plan = make("local", study="vitals")
    status = coordinated(tmp_path / "vitals", plan)
    assert status is not None
    pages = CoordinatorPages([tmp_path])
    status.attended({"s0": "agreed", "s1": "waits for its steward", "s2": "absent", "s3": "busy with other studies"})
    key = pages._studies()[0].key
    pages._studies.forget()
    shown = section(pages.page(f"study/{key}", 0, ""), "sites")
    for words in ("agreed", "waits for its steward", "absent", "busy with other studies"):
        assert words in shown
    epsilons = {f"{line.epsilon:.4f}" for line in privacy_report(plan).per_site}
    assert all(each in shown for each in epsilons)
    page = pages.page(f"study/{key}", 0, "")
    for sentence in privacy_report(plan).sentences():
        assert sentence in section(page, "plan")
    assert plan.digest() in section(page, "plan")
    with pytest.raises(BadInput, match="report"):
        pages.report(f"study/{key}")
    result = carry_out(plan, make_sites(tmp_path / "ledgers"))
    result.write(tmp_path / "vitals" / "out")
    status.end("finished")
    pages._studies.forget()
    page = pages.page(f"study/{key}", 0, "")
    assert f"{result.estimate['mean'].value[0]:.6g}" in section(page, "result")
    assert "over" in section(page, "state")
    assert f"study/{key}/report" not in drawn(page)
    (tmp_path / "vitals" / "out" / "report.html").write_text("<h1>a report</h1>")
    assert f"study/{key}/report" in drawn(pages.page(f"study/{key}", 0, ""))
    assert pages.report(f"study/{key}") == b"<h1>a report</h1>"
    (tmp_path / "vitals" / "out" / "estimate.npz").write_bytes(b"")
    (tmp_path / "vitals" / "out" / "result.json").write_text("[]")
    page = pages.page(f"study/{key}", 0, "")
    assert f"{result.estimate['mean'].value[0]:.6g}" not in section(page, "result")
    assert 'class="fault"' in drawn(page)
    shutil.rmtree(tmp_path / "vitals")
    pages._studies.forget()
    assert pages.page(f"study/{key}", 0, "") is None


def test_watch_page_of_coordinator_shows_reason_of_refusal(tmp_path: Path) -> None:
    status = coordinated(tmp_path / "vitals")
    assert status is not None
    status.end(f"PolicyRefused: site 's1': the steward of this site refused this study: {HOSTILE}")
    pages = CoordinatorPages([tmp_path / "vitals"])
    page = pages.page(f"study/{pages._studies()[0].key}", 0, "")
    assert HOSTILE in section(page, "state")
    assert page is not None
    assert "refused" in page.status
    assert "script" not in parsed(drawn(page)).tags[10:]
    with pytest.raises(BadInput, match="steward"):
        pages.decide("study/x", "approved", "")


def test_watch_page_long_tables_are_split(tmp_path: Path) -> None:
    plan = make("local", study="many")
    for at in range(120):
        status = coordinated(tmp_path / f"s{at:03}", plan)
        assert status is not None
        status.end("finished")
    pages = CoordinatorPages([tmp_path])
    pieces = [pages.page("", part, "") for part in range(4)]
    links = [drawn(page).count('href="study/') for page in pieces]
    assert links == [50, 50, 20, 0]
    assert "101 to 120" in section(pieces[0], "past")


def test_watch_page_shows_stored_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "own"))
    rng = np.random.default_rng(0)
    tables = {name: rng.uniform(0, 1, (30, 2)) for name in ("a", "b", "c")}
    policies = {name: Policy(population=name, ledger=tmp_path / f"{name}.sqlite") for name in tables}
    result = run(
        build("mean", {"columns": ["x", "y"], "lower": [0, 0], "upper": [1, 1]}),
        tables,
        epsilon=1.0,
        delta=1e-5,
        unit="person",
        policies=policies,
    )
    pages = CoordinatorPages([])
    kept = section(pages.page("", 0, ""), "kept")
    assert "over" in kept
    assert "epsilon 1.0000 of 1" in kept
    page = pages.page(f"kept/{result.kept}", 0, "")
    assert f"{result.estimate['mean'].value[0]:.6g}" in section(page, "result")
    (tmp_path / "own" / "results" / result.kept / "result" / "result.json").write_text("{")
    pages._archive.forget()
    assert "cannot be read" in section(pages.page("", 0, ""), "kept")
    assert pages.page("kept/nothing", 0, "") is None
    assert pages.page("kept/..", 0, "") is None
    assert pages.page("what/is/this", 0, "") is None


def test_watch_page_of_steward_shows_plan_and_decides(home: Path) -> None:
    pages, plan = SitePages(home / "site.toml"), make("local", study="vitals")
    consents = Consents(home / "state")
    consents.keep(plan)
    home_page = pages.page("", 0, "")
    assert home_page is not None
    assert home_page.count == 1
    assert "vitals" in section(home_page, "waiting")
    page = pages.page(f"study/{plan.digest()}", 0, "secret")
    report = privacy_report(plan)
    assert f"epsilon {report.per_site[0].epsilon:.4f} at delta {plan.delta:g}" in section(page, "cost")
    whole = section(page, "whole")
    assert all(sentence in whole for sentence in report.sentences())
    assert all(f"{line.sensitivity:.4g}" in whole for line in report.releases)
    assert "zerosum site dry-run" in section(page, "cost")
    assert 'value="secret"' in drawn(page)
    said = pages.decide(f"study/{plan.digest()}", "refused", "not this year")
    assert all(part in said for part in ("refused", plan.digest(), "not this year"))
    assert consents.reason(plan.digest()) == "not this year"
    page = pages.page(f"study/{plan.digest()}", 0, "secret")
    assert "not this year" in section(page, "state")
    assert "secret" not in drawn(page)
    for path, decision in (("study/x", "approved"), (f"study/{plan.digest()}", "maybe"), ("", "approved")):
        with pytest.raises(BadInput):
            pages.decide(path, decision, "")
    with pytest.raises(BadInput, match="report"):
        pages.report(f"study/{plan.digest()}")


def test_watch_page_of_steward_shows_refusals_by_policy_and_cap(home: Path) -> None:
    text = (home / "site.toml").read_text()
    (home / "site.toml").write_text(text.replace('# columns = ["age", "bmi"]', 'columns = ["age"]'))
    pages, plan = SitePages(home / "site.toml"), make("local", study="vitals")
    Consents(home / "state").keep(plan)
    assert "'b'" in section(pages.page(f"study/{plan.digest()}", 0, ""), "cost")
    (home / "site.toml").write_text(text)
    pages = SitePages(home / "site.toml")
    assert "'b'" not in section(pages.page(f"study/{plan.digest()}", 0, ""), "cost")
    policy = pages._site.policy
    with policy.open_ledger() as ledger:
        ledger.record(Spend("other", 0, 0, "person", "mean", 1.0, 2.0, "aa"), policy.cap)
    pages = SitePages(home / "site.toml")
    assert "cap of 10" in section(pages.page(f"study/{plan.digest()}", 0, ""), "cost")


def test_watch_page_hostile_names_stay_text(tmp_path: Path, home: Path) -> None:
    plan = hostile()
    Consents(home / "state").keep(plan)
    AuditLog(home / "state" / "audit.jsonl").write("waiting", HOSTILE, plan)
    status = coordinated(tmp_path / "studies" / "x", plan)
    assert status is not None
    status.attended({site.name: "absent" for site in plan.sites})
    steward, coordinator = SitePages(home / "site.toml"), CoordinatorPages([tmp_path / "studies"])
    key = coordinator._studies()[0].key
    own = {*("html", "head", "meta", "title", "base", "link", "body", "a", "header", "p", "strong", "main", "h1", "h2")}
    own |= {*("section", "div", "dl", "dt", "dd", "ul", "ol", "li", "span", "code", "details", "summary", "table")}
    own |= {*("caption", "thead", "tbody", "tr", "th", "td", "svg", "rect", "article", "h3", "time", "footer", "nav")}
    own |= {*("form", "input", "button", "label", "textarea", "script")}
    pages = [
        steward.page("", 0, ""),
        steward.page(f"study/{plan.digest()}", 0, ""),
        coordinator.page("", 0, ""),
        coordinator.page(f"study/{key}", 0, ""),
    ]
    for page in pages:
        found = parsed(drawn(page))
        assert set(found.tags) <= own
        assert found.tags.count("script") == 1  # ours
        assert HOSTILE in found.words
        assert not any(name.startswith("on") or name == "style" for name in found.attributes)


def test_watch_page_long_plan_is_shortened() -> None:
    plan = make("local")
    many = replace(plan.question, columns=tuple(f"c{at}" for at in range(500)), n_columns=500)
    shown = plans.question(replace(plan, question=many))
    assert "440" in shown
    assert "c499" in shown
    ends = replace(plan.question, columns=("first", "last"), n_columns=90_000, parameters={"x": "y" * 100_000})
    shown = plans.question(replace(plan, question=ends))
    assert "first ... last (90000)" in shown
    assert len(shown) < 30_000


@pytest.mark.parametrize(
    ("algorithm", "parameters", "words"),
    [
        ("describe", {"columns": ["x", "y"], "ranges": {"x": [0, 1], "y": [0, 1]}}, ("Means", "95 % population")),
        (
            "linear-regression",
            {"columns": ["x", "y"], "lower": [0, 0], "upper": [1, 1]},
            ("Coefficients", "95 % pooled data", "intercept"),
        ),
    ],
)
def test_watch_page_description_and_regression_have_own_tables(
    tmp_path: Path, algorithm: str, parameters: dict[str, object], words: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(0)
    tables = {name: rng.uniform(0, 1, (60, 2)) for name in ("a", "b", "c")}
    policies = {name: Policy.throwaway(name, tmp_path / f"{name}.sqlite") for name in tables}
    result = run(build(algorithm, parameters), tables, epsilon=5.0, delta=1e-5, unit="person", policies=policies)
    result.write(tmp_path / "out")
    shown = parsed(outcome(tmp_path / "out")).words
    assert all(each in shown for each in words)


def test_watch_page_lists_finished_study_with_cost_and_report(tmp_path: Path) -> None:
    plan = make("local", study="vitals")
    status = coordinated(tmp_path / "vitals", plan)
    assert status is not None
    carry_out(plan, make_sites(tmp_path / "ledgers")).write(tmp_path / "vitals" / "out")
    status.end("finished")
    pages = CoordinatorPages([tmp_path])
    past = section(pages.page("", 0, ""), "past")
    assert "over" in past
    assert f"epsilon {privacy_report(plan).worst_epsilon:.4f} of {plan.epsilon:g}" in past
    assert "/report" not in drawn(pages.page("", 0, ""))
    (tmp_path / "vitals" / "out" / "report.html").write_text("<h1>a report</h1>")
    (study,) = pages._studies()
    assert f'href="study/{study.key}/report"' in drawn(pages.page("", 0, ""))
