from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from helpers.small_studies import make
from zerosum.errors import BadStudy, LedgerRefused, PolicyRefused
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import MOST_PHASES, Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Noise, PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.site.ledger_records import Account, Cap, Spend
from zerosum.site.policy import Policy
from zerosum.statistics import BUILTIN


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def review(
    policy: Policy,
    *,
    scheme: str = "secure-sum",
    calibration: Literal["exact", "published"] | None = None,
    seed: int | None = None,
    statistics: Sequence[str] = ("mean",),
    units: int = 100,
    unit: str = "person",
    colluders: int = 1,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    kind: Literal["sum", "publication"] = "sum",
    noise: Noise = "gaussian",
) -> None:
    counted = 100 if adjacency is Adjacency.REPLACE_ONE else None
    terms = Terms(
        sites=tuple(PlannedSite(name, counted) for name in "abcd"),
        epsilon=1.0,
        delta=1e-5,
        scheme=Scheme("local" if calibration == "published" else scheme),
        coalition=Coalition(colluders),
        unit=unit,
        adjacency=adjacency,
        results_to_sites=False,
        calibration=calibration or "exact",
        seed=seed,
    )
    releases = [PlannedRelease(name, 2.0, 1 / len(statistics), 3, 1.0, kind=kind, noise=noise) for name in statistics]
    policy.review(Plan.of(terms, "s", "mean", tuple(releases)), units, frozenset({"mean", "histogram"}))


def refused(policy: Policy, word: str, **study: Any) -> None:
    with pytest.raises(PolicyRefused, match=word) as refusal:
        review(policy, **study)
    assert "\n" not in str(refusal.value)


# ---- the file ----------------------------------------------------------------------------------------------


def test_policy_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "site" / "policy.toml"
    file.parent.mkdir()
    file.write_text(
        'population = "cohort 7"\nunit = "record"\nadjacency = "add-remove"\nepsilon = 3\ndelta = 1e-6\n'
        'statistics = ["mean"]\nminimum_units = 50\nrows_per_unit = 4\ndata = "synthetic"\n'
        'trusted_coordinator = true\nledger = "books/l.sqlite"\ncounter = "/elsewhere/l.counter"\n'
    )
    policy = Policy.load(file)
    assert policy.account == Account("cohort 7", "record", "add-remove", 4)
    assert policy.cap == Cap(3.0, 1e-6)
    assert policy.statistics == ("mean",)
    assert policy.ledger_path == tmp_path / "site" / "books" / "l.sqlite"
    assert policy.counter == Path("/elsewhere/l.counter")


def test_policy_defaults_are_strict(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('population = "cohort"\n')
    policy = Policy.load(file)
    assert policy == Policy(population="cohort")
    assert (policy.cap, policy.data, policy.minimum_units) == (Cap(10.0, 1e-5), "private", 10)
    assert policy.account == Account("cohort", "person", "replace-one")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "'population'"),
        ('population = "  "', "population"),
        ("population = 7", "population: .* 7$"),
        ('population = "c"\nepsilom = 3', "'epsilom'"),
        ('population = "c"\nepsilon = -1', "epsilon: .* -1$"),
        ('population = "c"\nepsilon = nan', "epsilon"),
        ('population = "c"\nepsilon = true', "epsilon: .* True$"),
        ('population = "c"\ndelta = 1.0', "delta: .* 1$"),
        ('population = "c"\nminimum_units = 0', "minimum_units: .* 0$"),
        ('population = "c"\nminimum_units = true', "minimum_units: .* True$"),
        ('population = "c"\nrows_per_unit = 2.5', "rows_per_unit: .* 2.5$"),
        ('population = "c"\nunit = "row"', "unit: .* 'row'$"),
        ('population = "c"\nadjacency = "near"', "adjacency: .* 'near'$"),
        ('population = "c"\ndata = "secret"', "data: .* 'secret'$"),
        ('population = "c"\nstatistics = [1]', "statistics.0: .* 1$"),
        ('population = "c"\nledger = 3', "ledger: .* 3$"),
        ("population = ", "TOML"),
        ("\xff", "TOML"),
    ],
)
def test_policy_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadStudy, match=word) as refusal:
        Policy.load(file)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_policy_unreadable_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(BadStudy, match=str(path)):
            Policy.load(path)


def test_policy_is_immutable() -> None:
    policy = Policy(population="cohort")
    with pytest.raises(ValidationError):
        policy.epsilon = 100.0  # type: ignore[misc]  # this is what is tested


# ---- the ledger's place ------------------------------------------------------------------------------------


def test_policy_of_different_populations_have_different_ledgers(state: Path) -> None:
    names = ["a", "A", "a b", "a-b", "a/b", "../a", "a" * 300, "a" * 301, "é", "☃", "con", ".", "a\x00b"]
    paths = [Policy(population=name).ledger_path for name in names]
    assert len({str(path).lower() for path in paths}) == len(names)
    assert {path.parent for path in paths} == {state / "ledgers"}
    assert all(path.name.isascii() and len(path.name) < 80 for path in paths)


def test_policy_population_in_any_spelling_has_one_ledger() -> None:
    places = {Policy(population=name).ledger_path for name in ("Café 7", "Cafe\u0301 7", " Café  7\n")}
    assert len(places) == 1


def test_policy_without_state_folder_uses_user_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", "")
    monkeypatch.setattr("zerosum.site.policy.user_state_path", lambda name: tmp_path / "home" / name)
    assert Policy(population="a").ledger_path.parent == tmp_path / "home" / "zerosum" / "ledgers"


def test_policy_ledger_has_account_of_policy(tmp_path: Path) -> None:
    policy = Policy(population="cohort", rows_per_unit=3, counter=tmp_path / "count")
    with policy.open_ledger() as ledger:
        assert (ledger.path, ledger.counter, ledger.account) == (
            policy.ledger_path,
            tmp_path / "count",
            policy.account,
        )
        ledger.record(Spend("s", 0, 0, "record", "mean", 2.0, 0.1, "aa"), policy.cap)
    changed = policy.model_copy(update={"adjacency": Adjacency.ADD_REMOVE})
    with pytest.raises(LedgerRefused, match="add-remove"):
        changed.open_ledger()


# ---- what is refused ---------------------------------------------------------------------------------------


def test_policy_ordinary_study_is_allowed() -> None:
    review(Policy(population="cohort"))
    review(Policy(population="cohort"), scheme="local", units=10, statistics=["mean", "histogram", "mean"])


def test_policy_statistics_are_allowed_by_name() -> None:
    refused(Policy(population="c"), "'mine'", statistics=["mean", "mine"])
    listed = Policy(population="c", statistics=("mine",))
    review(listed, statistics=["mine"])
    refused(listed, "'mean'", statistics=["mean"])
    refused(Policy(population="c", statistics=()), "'mean'")


def test_policy_few_units_are_refused() -> None:
    refused(Policy(population="c"), "10 units", units=9)
    review(Policy(population="c", minimum_units=1), units=1)


def test_policy_other_adjacency_is_refused() -> None:
    refused(Policy(population="c"), "add-remove", adjacency=Adjacency.ADD_REMOVE)
    review(Policy(population="c", adjacency=Adjacency.ADD_REMOVE), adjacency=Adjacency.ADD_REMOVE)


def test_policy_record_level_study_needs_rows_per_unit() -> None:
    refused(Policy(population="c"), "rows_per_unit", unit="record")
    review(Policy(population="c", rows_per_unit=5), unit="record")
    review(Policy(population="c", unit="record"), unit="record")
    review(Policy(population="c", unit="record"), unit="person")


@pytest.mark.parametrize(
    ("study", "word"),
    [
        ({"scheme": "non-private"}, "'non-private'"),
        ({"scheme": "pooled"}, "trusted_coordinator"),
        ({"scheme": "cape-helper"}, "trusted_coordinator"),
        ({"calibration": "published"}, "'published'"),
        ({"seed": 1}, "seed"),
    ],
)
def test_policy_private_data_refuse_trusting_published_or_seeded_study(study: dict[str, Any], word: str) -> None:
    refused(Policy(population="c"), word, **study)
    review(Policy(population="c", data="public"), **study)
    review(Policy(population="c", data="synthetic"), **study)
    trusting = Policy(population="c", trusted_coordinator=True)
    if study.get("scheme") in ("pooled", "cape-helper"):
        review(trusting, **study)
    else:
        refused(trusting, word, **study)


def test_policy_minimum_colluders_above_study_is_refused() -> None:
    refused(Policy(population="c", minimum_colluders=2), "collud", colluders=1)
    refused(Policy(population="c"), "collud", colluders=0)
    review(Policy(population="c", minimum_colluders=0), colluders=0)


def test_policy_publication_without_permission_is_refused() -> None:
    refused(Policy(population="c"), "publications", kind="publication")
    review(Policy(population="c", publications=True), kind="publication")


def test_policy_noise_law_that_is_not_listed_is_refused() -> None:
    review(Policy(population="c"), noise="gaussian")
    review(Policy(population="c"), noise="laplace")
    careful = Policy(population="c", noise=("gaussian",))
    review(careful, noise="gaussian")
    refused(careful, "laplace noise", noise="laplace")
    refused(Policy(population="c", noise=("laplace",)), "gaussian noise", noise="gaussian")
    # A study without noise has no law.
    review(Policy(population="c", noise=("laplace",), data="public"), scheme="non-private")


@pytest.mark.parametrize("value", ["[]", '["uniform"]', '"laplace"'])
def test_policy_noise_law_that_does_not_exist_is_refused(value: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'population = "c"\nnoise = {value}\n')
    with pytest.raises(BadStudy, match="noise"):
        Policy.load(file)


def test_policy_too_many_phases_or_rounds_are_refused_before_accounting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*args: object) -> float:
        raise AssertionError("accounted")

    monkeypatch.setattr(Plan, "site_epsilon", never)
    monkeypatch.setattr("zerosum.kernel.plan.step_mus", never)
    terms = Terms(
        sites=tuple(PlannedSite(name) for name in "abcd"),
        epsilon=1.0,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=Coalition(1),
        attempts=2,
    )
    release = PlannedRelease("mean", 2.0, 0.5, 3, 1.0)
    phases = tuple(replace(release, sampling=Sampling(rate, 10)) for rate in (0.1, 0.2))
    plan = Plan.of(terms, "s", "mean", phases)
    for policy, word in (
        (Policy(population="c", study_epsilon=1.0, most_phases=1), "phases"),
        (Policy(population="c", study_epsilon=1.0, most_rounds=21), "21 rounds"),
    ):
        with pytest.raises(PolicyRefused, match=word):
            policy.review(plan, 100, frozenset({"mean"}))
        assert len(list(policy.refusals(plan, 100, frozenset({"mean"})))) == 1  # nor where all of them are listed
    Policy(population="c", most_phases=2, most_rounds=22).review(plan, 100, frozenset({"mean"}))
    Policy(population="c", most_phases=1).review(replace(plan, releases=phases[:1] * 2), 100, frozenset({"mean"}))
    with pytest.raises(ValidationError, match="most_phases"):
        Policy(population="c", most_phases=MOST_PHASES + 1)


def test_policy_with_roster_refuses_site_without_pinned_identity() -> None:
    policy = Policy(population="p", epsilon=1.0, data="synthetic", roster={"a": "00" * 32, "b": "11" * 32})

    def proposed(identity: str | None) -> Plan:
        return replace(make("local"), sites=(PlannedSite("a", identity="00" * 32), PlannedSite("b", identity=identity)))

    policy.review(proposed("11" * 32), 20, BUILTIN)
    for identity in (None, "22" * 32):
        with pytest.raises(PolicyRefused, match="identity"):
            policy.review(proposed(identity), 20, BUILTIN)
