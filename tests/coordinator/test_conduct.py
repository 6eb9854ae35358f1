from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.small_studies import QUESTION, carry_out, entries, make, make_sites
from zerosum.algorithms import KMeansProgram
from zerosum.algorithms.program import Program
from zerosum.compute.units import Units
from zerosum.coordinator.conduct import conduct
from zerosum.engines.in_process import InProcess
from zerosum.errors import (
    Abandoned,
    BadData,
    BadParameter,
    BudgetExceeded,
    Inconsistent,
    NotAgreed,
    OutsidePlan,
    PolicyRefused,
    Refused,
    UnknownStatistic,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Combine, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Message, Prepare, Propose, Reply
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.histogram import Histogram
from zerosum.statistics.vectors import VectorSum
from zerosum.study import execute, pin, run

RUNNABLE = ["non-private", "pooled", "local", "cape-published", "cape-helper", "zero-sum", "pairwise", "secure-sum"]


@pytest.mark.parametrize("scheme", RUNNABLE)
def test_conduct_every_scheme_charges_every_ledger_and_is_near_truth(scheme: str, tmp_path: Path) -> None:
    """Off by more than 6 standard deviations once in 10^8 runs."""
    sites = make_sites(tmp_path)
    result = carry_out(make(scheme), sites)
    truth = np.vstack([site.units.rows for site in sites]).mean(axis=0)
    error = np.abs(np.asarray(result.estimate["mean"]) - truth)
    assert np.all(error <= 6 * np.asarray(result.estimate["noise_std"]) + 1e-9 + 0.02)  # 0.02: the clip at norm 1
    assert result.participants == (("s0", "s1", "s2", "s3"),)
    assert [entries(site) for site in sites] == ([0] * 4 if scheme == "non-private" else [1] * 4)
    for site, line in zip(sites, result.report.per_site, strict=True):
        if scheme != "non-private":
            with site.policy.open_ledger() as ledger:
                assert ledger.mu == pytest.approx(line.mu)


@pytest.mark.parametrize("scheme", ["cape-published", "zero-sum", "pairwise", "cape-helper"])
def test_conduct_cancelling_noise_cancels(scheme: str, tmp_path: Path) -> None:
    """With cancelling noise a million times the rest, the sum is as accurate as its own noise says."""
    plan = make(scheme)
    if scheme in ("zero-sum", "pairwise"):
        plan = replace(plan, scheme=Scheme(scheme, ratio=1e6))
    result = carry_out(plan, make_sites(tmp_path))
    assert np.all(np.abs(np.asarray(result.estimate["mean"])) < 10 * np.asarray(result.estimate["noise_std"]) + 0.2)


@pytest.mark.parametrize("combine", [Combine.MEANS, Combine.WEIGHTED])
def test_conduct_published_combinations_of_unequal_sites_are_near_truth(combine: Combine, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    shapes = tuple(PlannedSite(site.name, len(site.units)) for site in sites)
    plan = replace(make(), sites=shapes, scheme=Scheme("cape-published", combine=combine))
    result = carry_out(plan, sites)
    if combine is Combine.MEANS:
        truth = np.mean([site.units.rows.mean(axis=0) for site in sites], axis=0)
        assert "weighted mean" in result.report.sentences()[-1]
    else:
        truth = np.vstack([site.units.rows for site in sites]).mean(axis=0)
    assert np.all(
        np.abs(np.asarray(result.estimate["mean"]) - truth) < 6 * np.asarray(result.estimate["noise_std"]) + 0.03
    )


@pytest.mark.parametrize("scheme", ["cape-published", "cape-helper"])
def test_conduct_weights_without_printed_solution_give_the_weighted_mean(scheme: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    weights = [0.3, 0.3, 0.3, 0.1]
    shapes = tuple(PlannedSite(s.name, len(s.units), weight=p) for s, p in zip(sites, weights, strict=True))
    plan = replace(make(), sites=shapes, scheme=Scheme(scheme, combine=Combine.WEIGHTED))
    again = Plan.from_json(plan.to_json())  # what a site reads
    assert np.array_equal(plan.law(0).own, again.law(0).own)
    assert np.array_equal(plan.law(0).cancelling, again.law(0).cancelling)
    result = carry_out(plan, sites)
    truth = sum(p * site.units.rows.mean(axis=0) for p, site in zip(weights, sites, strict=True))
    # Noise of 2 columns exceeds 6 standard deviations with probability 4e-9; 0.03 covers the clip of long rows.
    assert np.all(
        np.abs(np.asarray(result.estimate["mean"]) - truth) < 6 * np.asarray(result.estimate["noise_std"]) + 0.03
    )


def test_conduct_site_with_scale_gets_smaller_mu(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    shapes = tuple(PlannedSite(site.name, scale=0.5 if site.name == "s1" else 1.0) for site in sites)
    result = carry_out(make("local", sites=shapes), sites)
    lines = {line.site: line.mu for line in result.report.per_site}
    assert lines["s1"] == pytest.approx(lines["s0"] / 2, rel=1e-3)  # rounding slack is not scaled
    weights = np.array([1, 0.5, 1, 1])
    total = sum(w * site.units.rows.sum(axis=0) for w, site in zip(weights, sites, strict=True))
    truth = total / sum(w * len(site.units) for w, site in zip(weights, sites, strict=True))
    assert np.all(
        np.abs(np.asarray(result.estimate["mean"]) - truth) < 6 * np.asarray(result.estimate["noise_std"]) + 0.02
    )


@pytest.mark.parametrize("scheme", ["local", "secure-sum", "zero-sum", "pairwise", "pooled", "cape-published"])
def test_conduct_means_with_scaled_sites_are_unbiased(scheme: str, tmp_path: Path) -> None:
    """Everybody has the same row, so that a weighted mean is that row, and only if the divisor has the weights too."""
    row = np.array([0.6, -0.3])
    sites = [
        Site(
            f"s{i}",
            Units.from_rows(np.tile(row, (n, 1))),
            Policy(population=f"p{i}", ledger=tmp_path / f"{i}.sqlite", data="synthetic", epsilon=1e5),
        )
        for i, n in enumerate((1000, 2000, 500, 4000))
    ]
    scales = (1.0, 0.25, 0.5, 0.1)
    shapes = tuple(PlannedSite(f"s{i}", scale=scale) for i, scale in enumerate(scales))
    plan = make(scheme, sites=shapes, epsilon=20.0, delta=1e-3)
    result = carry_out(plan, sites)
    noise = float(np.max(result.estimate["noise_std"]))
    assert noise < 0.01  # without the scales the mean would be off by far more: 1/3 of it is left
    assert np.asarray(result.estimate["mean"]) == pytest.approx(row, abs=6 * noise + 1e-6)
    sizes = {site.name: len(site.units) for site in sites}
    assert plan.effective_units(("s1", "s3"), sizes) == pytest.approx(0.25 * 2000 + 0.1 * 4000)


VALUE = "4242424242"  # of the data, and the number of no line of code


class Broken(Site):
    """A site with a fault in it that quotes data."""

    fault: ClassVar[Exception] = ValueError(f"person 17 has {VALUE}")

    def handle(self, message: Message) -> Reply:
        if isinstance(message, Contribute):
            raise self.fault
        return super().handle(message)


@pytest.mark.parametrize(
    "fault",
    [ValueError(VALUE), KeyError(VALUE), ZeroDivisionError(VALUE), UnicodeDecodeError("ascii", b"42", 0, 1, VALUE)],
)
def test_conduct_internal_error_of_site_reveals_nothing(
    fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sites = make_sites(tmp_path)
    sites[2] = Broken("s2", sites[2].units, sites[2].policy)
    monkeypatch.setattr(Broken, "fault", fault)
    with pytest.raises(Refused, match="'s2'") as refused:
        carry_out(make("local"), sites)
    assert type(refused.value) is Refused
    assert VALUE not in "".join(traceback.format_exception(refused.value)).split("Refused", 1)[1]
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]  # for whoever debugs at the site
    assert logged == [fault]


def test_conduct_refusal_of_site_leaves_detail_at_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = make_sites(tmp_path)
    sites[2] = Broken("s2", sites[2].units, sites[2].policy)
    monkeypatch.setattr(Broken, "fault", BadData("some values are wrong", detail=f"row {VALUE}"))
    with pytest.raises(BadData) as refused:
        carry_out(make("local"), sites)
    assert "'s2'" in str(refused.value)
    assert str(refused.value).endswith("some values are wrong")
    assert not refused.value.detail
    assert VALUE not in "".join(traceback.format_exception(refused.value)).split("BadData: some", 1)[1]


@pytest.mark.parametrize("sensitivity", [float("nan"), float("inf"), -1.0, 0.0])
def test_plan_with_bad_sensitivity_is_refused(sensitivity: float) -> None:
    plan = make("local")
    with pytest.raises(BadParameter, match="sensitivity"):
        replace(plan, releases=(replace(plan.releases[0], sensitivity=sensitivity),))


def test_pin_and_run_two_sites_with_one_ledger_are_refused(tmp_path: Path) -> None:
    """The same people must not take part twice: by name, by path, or by another way of writing the path."""
    sites = make_sites(tmp_path)
    for other in (tmp_path / "0.sqlite", Path(os.path.relpath(tmp_path / "0.sqlite"))):
        twin = Site("s1", sites[1].units, sites[1].policy.model_copy(update={"ledger": other}))
        with pytest.raises(BadParameter, match="ledger"):
            pin(make("local"), [sites[0], twin, *sites[2:]])
    tables = {name: np.zeros((20, 2)) for name in ("a", "b", "c")}
    policies = {name: Policy(population="everybody" if name != "c" else "c") for name in tables}
    with pytest.raises(BadParameter, match="ledger"):
        run(QUESTION, tables, epsilon=1.0, delta=1e-5, unit="person", policies=policies)
    with policies["a"].open_ledger() as ledger:
        assert not ledger.entries()


def test_conduct_record_study_with_units_of_several_rows_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, unit="record")
    assert carry_out(make("local", unit="record"), sites).report.unit == "record"
    rows = np.zeros((24, 2))
    pairs = Units.from_list([rows[:2], *rows[2:, None]])  # one of 23 owns two rows
    for kind in ("record", "person"):
        policy = sites[2].policy.model_copy(update={"unit": kind, "rows_per_unit": 2, "ledger": tmp_path / kind})
        sites[2] = Site("s2", pairs, policy)
        with pytest.raises(PolicyRefused, match="rows"):
            carry_out(make("local", unit="record", study=f"again {kind}"), sites)
        assert [entries(site) for site in sites] == [1, 1, 0, 1]
    with pytest.raises(PolicyRefused, match="rows"):
        run(QUESTION, {"a": rows, "b": pairs}, epsilon=1.0, delta=1e-5, unit="record")


def lose(kind: type, *names: str) -> Callable[[str, Message], bool]:
    return lambda site, message: isinstance(message, kind) and site in names


@pytest.mark.parametrize(
    ("scheme", "kind", "dropouts", "survives"),
    [
        ("local", Contribute, 0, False),
        ("local", Contribute, 1, True),
        ("pooled", Contribute, 1, True),
        ("zero-sum", Prepare, 0, False),
        ("zero-sum", Prepare, 1, True),
        ("pairwise", Prepare, 1, True),
        ("zero-sum", Contribute, 1, False),
        ("secure-sum", Contribute, 0, False),
        ("secure-sum", Contribute, 1, True),
        ("pairwise", Contribute, 1, False),
        ("cape-helper", Contribute, 1, False),
        ("local", Propose, 1, False),
    ],
)
def test_conduct_losses_within_plan_are_survived_and_more_abandon_round(
    scheme: str, kind: type, dropouts: int, survives: bool, tmp_path: Path
) -> None:
    sites = make_sites(tmp_path)
    plan = make(scheme, coalition=Coalition(1, dropouts))
    loses = lose(kind, "s2")
    if not survives:
        with pytest.raises(Abandoned):
            carry_out(plan, sites, loses)
        if kind is Propose:
            assert [entries(site) for site in sites] == [0] * 4
        return
    result = carry_out(plan, sites, loses)
    assert result.participants == (("s0", "s1", "s3"),)
    truth = np.vstack([site.units.rows for site in sites if site.name != "s2"]).mean(axis=0)
    assert np.all(
        np.abs(np.asarray(result.estimate["mean"]) - truth) < 6 * np.asarray(result.estimate["noise_std"]) + 0.02
    )
    assert entries(sites[2]) == 0


def test_conduct_spend_before_loss_stays_spent(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    with pytest.raises(Abandoned):
        carry_out(make("local"), sites, lose(Contribute, "s3"))
    assert [entries(site) for site in sites] == [1, 1, 1, 0]


def ask(*requests: PrivateSum) -> Program:
    for request in requests:
        release = yield request
        assert release.participants
    return {}


def test_conduct_release_outside_plan_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    planned = QUESTION.requests(Adjacency.REPLACE_ONE)
    plan = make("local")
    wrong = [
        PrivateSum(Histogram(bins=2)),
        PrivateSum(VectorSum(columns=2, clip=1.0), share=0.5),
        PrivateSum(VectorSum(columns=2, clip=2.0)),
        PrivateSum(VectorSum(columns=2, clip=1.0, count=True)),
        PrivateSum(VectorSum(columns=3, clip=1.0)),
    ]
    for request in wrong:
        with pytest.raises((OutsidePlan, BadData)):
            conduct(plan, ask(request), InProcess(sites))
    assert [entries(site) for site in sites] == [0] * 4
    with pytest.raises(OutsidePlan, match="2"):
        conduct(plan, ask(planned[0], planned[0]), InProcess(sites))


def test_site_contribute_again_gives_same_reply_and_other_request_is_refused(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    request = QUESTION.requests(Adjacency.REPLACE_ONE)
    site.handle(Propose(make("local")))
    first = site.handle(Contribute(0, 0, request[0]))
    assert site.handle(Contribute(0, 0, request[0])) is first  # the same request, the same reply, charged once
    assert entries(site) == 1
    with pytest.raises(Inconsistent):
        site.handle(Contribute(0, 0, PrivateSum(VectorSum(columns=2, clip=0.5))))
    for message in (
        Contribute(1, 0, request[0]),
        Contribute(0, 1, request[0]),
        Contribute(-1, 0, request[0]),
    ):
        with pytest.raises(OutsidePlan):
            site.handle(message)


def test_site_without_consent_contributes_nothing(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    with pytest.raises(NotAgreed):
        site.handle(Contribute(0, 0, QUESTION.requests(Adjacency.REPLACE_ONE)[0]))
    with pytest.raises(NotAgreed):
        site.handle(Prepare(0, 0))
    stranger = replace(make(), sites=(PlannedSite("x"), PlannedSite("y")))
    with pytest.raises(OutsidePlan, match="'s0'"):
        site.handle(Propose(stranger))


@pytest.mark.parametrize(
    ("policy", "changes", "error", "named"),
    [
        ({"statistics": ("histogram",)}, {}, PolicyRefused, "vector_sum"),
        ({"minimum_units": 13}, {}, PolicyRefused, "13"),
        ({"epsilon": 4.0}, {}, BudgetExceeded, "p0"),
        ({"data": "private"}, {"seed": 1}, PolicyRefused, "private"),
        ({"data": "private"}, {"scheme": Scheme("non-private")}, PolicyRefused, "private"),
        ({"data": "private"}, {"scheme": Scheme("pooled")}, PolicyRefused, "pooled"),
        (
            {"data": "private"},
            {"scheme": Scheme("local"), "calibration": "published"},
            PolicyRefused,
            "private",
        ),
        ({}, {"adjacency": Adjacency.ADD_REMOVE}, PolicyRefused, "add-remove"),
    ],
)
def test_conduct_plan_refused_by_policy_does_not_start(
    policy: dict[str, object],
    changes: dict[str, object],
    error: type[Exception],
    named: str,
    tmp_path: Path,
) -> None:
    sites = make_sites(tmp_path, **policy)  # type: ignore[arg-type]
    plan = make(**changes) if "scheme" not in changes else replace(make("local"), **changes)  # type: ignore[arg-type]
    with pytest.raises(error, match=named):
        carry_out(plan, sites)
    if error is not BudgetExceeded:
        assert not any(site.policy.ledger_path.exists() for site in sites)


def test_conduct_data_that_do_not_fit_are_refused_before_release(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    for rows, named in [(np.zeros((20, 3)), "columns"), (np.zeros((0, 2)), "10")]:
        bad = [Site("s0", Units.from_rows(rows), sites[0].policy), *sites[1:]]
        with pytest.raises((BadData, PolicyRefused, OutsidePlan), match=named):
            carry_out(make(), bad)
    shapes = tuple(PlannedSite(site.name, units=11) for site in sites)
    with pytest.raises(PolicyRefused, match="11"):
        carry_out(make(sites=shapes), sites)
    assert [entries(site) for site in sites] == [0] * 4


def test_conduct_statistic_unknown_at_site_is_refused(tmp_path: Path) -> None:
    plan = make("local")
    hidden = replace(plan, releases=(replace(plan.releases[0], statistic="nobody_knows_it"),))
    sites = make_sites(tmp_path, statistics=("nobody_knows_it",))
    with pytest.raises(UnknownStatistic, match="nobody_knows_it"):
        conduct(hidden, ask(), InProcess(sites))


def test_conduct_rounds_and_studies_spend_until_cap(tmp_path: Path) -> None:
    """Two studies of eps 5 each fit under a cap of 8 (they compose), a third does not and is refused whole."""
    sites = make_sites(tmp_path, epsilon=8.0)
    question = KMeansProgram(columns=("a", "b"), n_clusters=1, rounds=1, early_share=0.2, clip=1.0)
    for _ in range(2):
        plan = replace(make("zero-sum"), releases=question.releases(Adjacency.REPLACE_ONE), study=f"{_}")
        carry_out(plan, sites, question=question)
    with pytest.raises(BudgetExceeded):
        carry_out(replace(plan, study="third"), sites, question=question)
    assert [entries(site) for site in sites] == [8] * 4


def test_conduct_with_seed_repeats_and_reports_no_privacy(tmp_path: Path) -> None:
    runs = []
    for folder in ("one", "two"):
        result = carry_out(make("local", seed=3), make_sites(tmp_path / folder))
        assert not result.report.private
        assert "protects no person" in result.report.sentences()[0]
        runs.append(np.asarray(result.estimate["mean"]))
    assert np.array_equal(runs[0], runs[1])


def test_plan_without_colluders_is_refused_if_results_go_to_sites() -> None:
    with pytest.raises(BadParameter, match="colluder"):
        make(coalition=Coalition(0))
    make(coalition=Coalition(0), results_to_sites=False)


@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum"])
def test_conduct_site_lost_in_one_round_joins_next(scheme: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    question = KMeansProgram(columns=("a", "b"), n_clusters=1, rounds=1, early_share=0.2, clip=1.0)
    plan = replace(make(scheme, coalition=Coalition(1, 1)), releases=question.releases(Adjacency.REPLACE_ONE))
    kind = Contribute if scheme == "secure-sum" else Prepare

    def loses(site: str, message: Message) -> bool:
        return site == "s1" and isinstance(message, kind) and message.round == 1

    result = carry_out(plan, sites, loses, question)
    assert [len(names) for names in result.participants] == [4, 3, 4, 4]
    assert [entries(site) for site in sites] == [4, 3, 4, 4]


def test_conduct_program_may_continue_after_abandoned_round(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    request = replace(QUESTION.requests(Adjacency.REPLACE_ONE)[0], share=0.5)

    def stubborn() -> Program:
        heard = []
        for _ in range(2):
            try:
                release = yield request
                heard.append(release.value)
            except Abandoned:
                heard.append(np.zeros(2))
        return {"first": Quantity(heard[0]), "second": Quantity(heard[1])}

    plan = make("secure-sum")
    plan = pin(replace(plan, releases=(replace(plan.releases[0], share=0.5),) * 2), sites)
    lost = InProcess(
        sites, lambda name, message: isinstance(message, Contribute) and message.round == 0 and name == "s2"
    )
    outcome = conduct(plan, stubborn(), lost)
    assert outcome.participants == ((), ("s0", "s1", "s2", "s3"))
    assert not np.any(outcome.result["first"])
    assert np.any(outcome.result["second"])
    assert [entries(site) for site in sites] == [2, 2, 1, 2]  # what was spent in the abandoned round stays spent


def test_site_with_roster_refuses_other_sites(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    roster = {site.name: site.identity.public.hex() for site in sites}
    knowing = Site("s0", sites[0].units, sites[0].policy.model_copy(update={"roster": roster}), sites[0].identity)
    carry_out(make("secure-sum"), [knowing, *sites[1:]])
    impostor = Site("s2", sites[2].units, sites[2].policy)  # the same name, another key
    with pytest.raises(PolicyRefused, match="'s2'"):
        carry_out(make("secure-sum"), [knowing, sites[1], impostor, sites[3]])
    del roster["s3"]
    with pytest.raises(PolicyRefused, match="'s3'"):
        carry_out(make("secure-sum"), [knowing, *sites[1:]])


class ForgedConsents(InProcess):
    """Replaces the number of units in one site's consent."""

    units: int | None = None

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, reply in super().exchange(frames):
            forged = name == "s1" and reply is not None and isinstance(decode_reply(reply), Consent)
            yield name, encode(Consent("s1", self.units)) if forged else reply


@pytest.mark.parametrize("units", [None, 10**400, 10**9], ids=["none", "endless", "many"])
def test_consent_with_another_number_of_units_ends_the_study(units: int | None, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, len(site.units)) for site in sites))
    engine = ForgedConsents(sites)
    engine.units = units
    with pytest.raises(ZerosumError):
        execute(pin(plan, sites), QUESTION, engine)
