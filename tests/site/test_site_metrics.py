"""Figures for monitors, and many studies through one site: nothing grows."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.small_studies import QUESTION, make
from zerosum.compute.units import Units
from zerosum.errors import BadInput
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Dismiss, Dismissed, Propose
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.metrics import NAME, Metrics, process, read
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service

REQUEST = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
MEGABYTES = 4


def serve(folder: Path) -> tuple[Service, Consents]:
    policy = Policy(population="p", data="synthetic", epsilon=1e5, ledger=folder / "ledger.sqlite")
    consents = Consents(folder, automatic=True)

    def load(plan: object) -> Units:
        return Units.from_rows(np.random.default_rng(0).normal(size=(MEGABYTES << 16, 2)))

    schema, log = DataSchema(units=MEGABYTES << 16, n_columns=2), AuditLog(folder / "audit.jsonl")
    return Service("s0", policy, Identity(), load, consents, log, schema=schema, most_studies=4), consents


def take_part(service: Service) -> None:
    plan = make("local", epsilon=0.5)
    study = bytes.fromhex(plan.digest())
    assert isinstance(decode_reply(service.answer(study, encode(Propose(plan)))), Consent)
    assert isinstance(decode_reply(service.answer(study, encode(Contribute(0, 0, REQUEST)))), Contribution)
    assert isinstance(decode_reply(service.answer(study, encode(Dismiss()))), Dismissed)


def test_site_metrics_file_has_counts_and_private_mode(tmp_path: Path) -> None:
    service, consents = serve(tmp_path)
    assert read(tmp_path) == {}
    with Metrics(tmp_path, service, consents, every=0.05):
        take_part(service)
        service.answer(bytes(32), b"nonsense")
        consents.keep(make("local"))
        end = time.monotonic() + 20
        while (record := read(tmp_path))["counts"].get("frames", 0) < 4 or not record["waiting"]:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert record["serving"]
    assert (record["studies"], record["waiting"], record["pid"]) == (0, 1, os.getpid())
    assert record["counts"]["answered Contribution"] == record["counts"]["refused Malformed"] == 1
    assert record["disk_free_bytes"] > 0
    assert record["age_seconds"] < 20
    assert not read(tmp_path)["serving"]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    (tmp_path / NAME).write_text(json.dumps({"written": "never"}))
    with pytest.raises(BadInput, match=NAME):
        read(tmp_path)


def test_service_after_fifty_studies_holds_no_extra_memory_or_files(tmp_path: Path) -> None:
    """Each reads its own megabytes; only as many stay as may be open at once, and no file does."""
    service, _ = serve(tmp_path)
    for _ in range(10):
        take_part(service)
    gc.collect()
    before = process()
    for _ in range(40):
        take_part(service)
    gc.collect()
    after = process()
    assert len(service._ledger.entries()) == 50
    assert service.studies == 0
    assert not service._sessions
    assert after["open_files"] == before["open_files"]
    assert after["threads"] == before["threads"]
    assert after["memory_bytes"] - before["memory_bytes"] < 2 * MEGABYTES << 20  # less than two studies of forty
    service.close()
