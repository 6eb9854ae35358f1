"""What a review found once, and what must not come back."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from helpers.small_studies import QUESTION, make, make_sites
from zerosum import algorithms
from zerosum.coordinator.journal import Journal
from zerosum.data.documents import load_documents
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadData, BadInput, BadParameter, Refused, ZerosumError
from zerosum.kernel.accountant import mixed_epsilon
from zerosum.kernel.events import Sampling, Subsampled
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition, dealer_mu
from zerosum.protocol.codec import decode_message, decode_reply, encode
from zerosum.protocol.messages import Consent, Propose
from zerosum.site.account import Spend, Total
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics import build
from zerosum.study import execute, pin, run
from zerosum.study.planning import make_plan


def test_a_dealer_gains_from_every_step_of_a_phase() -> None:
    release = PlannedRelease("vector_sum", 2.0, 1.0, 3, 1.0, sampling=Sampling(0.1, 200))
    sites = tuple(PlannedSite(f"s{i}") for i in range(4))
    terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("cape-helper"), coalition=Coalition(1))
    plan = Plan.of(terms, "s", "x", (release,))
    mu = float(dealer_mu(plan.law(0), release.accounted, plan.coalition)[0])
    true = mixed_epsilon(0.0, (Subsampled(mu, 0.1, 200),), 1e-5)
    assert plan.coordinator_epsilon(0) >= max(true, plan.site_epsilon(0)) * 0.999


def frame(request: dict[str, object], noise: object = None) -> bytes:
    base = {"kind": "sum", "name": "vector_sum", "share": 1.0, "sampling": None}
    base |= {"parameters": {"columns": 2, "clip": 1.0}}
    body = {"round": 0, "attempt": 0, "request": base | request, "noise_input": noise}
    text = json.dumps(["Contribute", body]).encode()
    return struct.pack(">4sHI", b"ZSUM", 1, len(text)) + text


@pytest.mark.parametrize(
    "request_",
    [
        {"share": 10**400},
        {"sampling": [10**400, 3]},
        {"parameters": {"columns": 2, "clip": 1.0, "self": 1}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"a": 1}, "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": [10**400, 0], "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"$": ["f8", 0, 2**32, 2**32, 2**32]}}},
    ],
)
def test_a_hostile_frame_is_refused_with_an_error_of_ours(request_: dict[str, object]) -> None:
    with pytest.raises(ZerosumError):
        decode_message(frame(request_))


class _Lying(InProcess):
    """One site's consent names another number of units than was declared."""

    said: int | None = None

    def exchange(self, frames):  # type: ignore[no-untyped-def]
        for name, reply in super().exchange(frames):
            lies = name == "s1" and reply is not None and isinstance(decode_reply(reply), Consent)
            yield name, encode(Consent("s1", self.said)) if lies else reply


@pytest.mark.parametrize("said", [None, 10**400, 10**9], ids=["none", "endless", "many"])
def test_a_consent_must_name_the_declared_units(said: int | None, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, len(site.units)) for site in sites))
    engine = _Lying(sites)
    engine.said = said
    with pytest.raises(ZerosumError):
        execute(pin(plan, sites), QUESTION, engine)


def test_two_long_phases_of_one_kind_can_be_added_up() -> None:
    spends = [Spend(n, 0, 0, "person", "vector_sum", 2.0, 1e-5, "ab", rate=0.01, steps=600_000) for n in "ab"]
    Total().plus([(spend, spend.mu) for spend in spends])


def test_identities_pinned_in_an_approved_plan_are_kept(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = make("local", sites=tuple(PlannedSite(site.name, identity="ab" * 32) for site in sites))
    with pytest.raises(ZerosumError, match="another identity"):
        pin(plan, sites)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "polynomial_coefficients",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "table": [[1e6], [1.0]], "weights": [1.0, 1.0]},
        ),
        ("column_moments", {"columns": 1, "lower": [-1], "upper": [1], "count": True}),
        (
            "residual_gradient",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "coefficients": [0.1, 0], "count": True},
        ),
        ("vector_sum", {"columns": 1, "clip": 0.1, "count": True}),
    ],
)
def test_a_unit_that_fails_is_no_further_from_others_than_units_are(name: str, parameters: dict[str, object]) -> None:
    """A vector of zeros is no contribution of these: whoever has NaN in a column without a rule counts as zeros."""
    statistic = build(name, {"clip": 1.0} | parameters)
    units = [np.full((1, statistic.columns), value) for value in (0.5, -1.0, np.nan, 1e300)]
    totals = [statistic.total(Units.from_list([unit])) for unit in units]
    for one in totals:
        for other in totals:
            assert np.linalg.norm(one - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE) * (1 + 1e-9)


def test_a_hostile_table_does_not_hang_a_site() -> None:
    table = [[-1, 0, 18, 0, -48, 0, 32], [0] * 7, [0] * 7]
    statistic = build(
        "polynomial_coefficients", {"columns": 2, "clip": 1.0, "table": table, "weights": [1.0, 0.0, 0.0]}
    )
    values = np.linspace(-1, 1, 2001)
    shape = -1 + 18 * values**2 - 48 * values**4 + 32 * values**6
    assert statistic.sensitivity(Adjacency.REPLACE_ONE) >= np.ptp(shape) * (1 - 1e-9)
    with pytest.raises(BadParameter, match="coefficients, more than"):
        build("polynomial_coefficients", {"columns": 41, "clip": 1.0, "table": [[1.0]] * 7, "weights": [1.0] * 7})


def test_a_persons_rows_that_cancel_do_not_round_others_away() -> None:
    """Weights, radius and clip are the coordinator's; rows of +G and -G with a mean of zero are not small."""
    features, hidden, size, clip = 4, 8, 2.0**19, 1e-8
    first, second = np.full(features * hidden, size), np.array([size, -size] * (hidden // 2))
    weights = np.concatenate([first, np.zeros(hidden), second, np.zeros(1)])
    params = {"columns": 5, "hidden": hidden, "weights": weights, "radius": 1e6, "clip": clip}
    statistic = build("two_layer_gradient", params)
    others = [np.array([[1.0, 2.0, 3.0, 4.0, 0.0]])] * 200
    cancelling = np.array([[2.0**18] * 4 + [0.0], [2.0**18] * 4 + [1.0]])
    one, two = (statistic.total(Units.from_list([*others, unit])) for unit in (cancelling, np.zeros((2, 5))))
    assert np.linalg.norm(one - two) <= 2 * clip * (1 + 1e-9)


def test_a_checkpoint_knows_its_data(tmp_path: Path) -> None:
    data = {name: np.random.default_rng(n).normal(size=(30, 2)) for n, name in enumerate("ab")}
    policies = {name: Policy.throwaway(name, tmp_path / f"{name}.sqlite", unit="record") for name in data}
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "policies": policies}
    asked |= {"checkpoint": tmp_path / "kept"}
    program = algorithms.Mean(columns=("x", "y"), clip=1.0)
    run(program, data, **asked)
    with pytest.raises(Refused, match="are not those of the study"):
        run(program, {**data, "b": data["b"] + 1}, **asked)


def test_a_site_without_a_module_refuses_before_anybody_pays(tmp_path: Path) -> None:
    policies = {
        name: Policy.throwaway(name, tmp_path / f"{name}.sqlite", unit="record", statistics=("module_gradient",))
        for name in "ab"
    }
    plan = make_plan(
        algorithms.Mean(columns=("x",), clip=1.0),
        Terms(
            sites=(PlannedSite("a"), PlannedSite("b")),
            epsilon=1.0,
            delta=1e-5,
            scheme=Scheme("local"),
            coalition=Coalition(1),
            unit="record",
        ),
        "study",
    )
    asked = PlannedRelease("module_gradient", 2.0, 1.0, 3, 1.0)
    plan = replace(plan, releases=(asked,), question=Question(parameters={"model": "nobody has it"}))
    site = Site("a", Units(np.zeros((20, 2))), policies["a"])
    with pytest.raises(BadParameter, match="unknown module 'nobody has it'"):
        site.handle(Propose(plan))


def test_a_journal_with_a_changed_length_is_damaged_and_stays(tmp_path: Path) -> None:
    data = {name: np.random.default_rng(n).normal(size=(30, 2)) for n, name in enumerate("ab")}
    policies = {name: Policy.throwaway(name, tmp_path / f"{name}.sqlite", unit="record") for name in data}
    program = algorithms.KMeans(columns=("x", "y"), clip=1.0, n_clusters=2, rounds=3)
    run(program, data, epsilon=1.0, delta=1e-5, unit="record", policies=policies, checkpoint=tmp_path / "kept")
    path = tmp_path / "kept" / "journal"
    whole = path.read_bytes()
    at = len(b"zerosum journal 1\n")
    for _ in range(3):
        for bit in (7, 5, 2):  # of the length's bytes: a little longer, and far beyond the end
            changed = bytearray(whole)
            changed[at + bit] ^= 1
            path.write_bytes(changed)
            with pytest.raises(BadInput, match="damaged"):
                Journal.open(tmp_path / "kept")
            assert path.read_bytes() == bytes(changed)
        at += 48 + int.from_bytes(whole[at : at + 8], "big")
    path.write_bytes(whole)
    journal = Journal.open(tmp_path / "kept")
    assert journal is not None
    with journal:
        assert journal.finished


def test_sparse_rows_with_entries_outside_are_refused() -> None:
    """Written out, they would be the counts of other documents, or of nobody's memory."""
    for place in (8, 200_000_000, -1):
        rows = csr_array((np.ones(3), np.array([0, place, 1]), np.array([0, 2, 3])), shape=(2, 8))
        with pytest.raises(BadData, match="column that they do not have"):
            Units.from_rows(rows)
        with pytest.raises(BadData, match="column that they do not have"):
            Units(rows).check()


def test_a_line_with_a_form_feed_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "notes.text").write_text("a\x0ca\x0ba\u2028a\nb\n")
    assert len(load_documents(tmp_path / "notes.text", ("a", "b"))) == 2
