"""A site that serves several studies, without a socket, for tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers.small_studies import QUESTION
from zerosum.compute.units import Units
from zerosum.errors import ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Message, Refusal, Reply
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service

REQUEST = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
ROWS = np.random.default_rng(0).normal(size=(40, 2)) * 0.3


def serve(
    folder: Path,
    *,
    name: str = "s0",
    automatic: bool = True,
    load: Any = None,
    studies: int = 8,
    hold: float = 3600.0,
    start: float = 3600.0,
    settle: float = 3600.0,
    keys: tuple[Identity, ...] = (),
    schema: DataSchema | None = None,
    **policy: Any,
) -> Service:
    settings: dict[str, Any] = {"data": "synthetic", "epsilon": 100.0, "ledger": folder / "ledger.sqlite", **policy}
    return Service(
        name,
        Policy(population="p", **settings),
        keys[0] if keys else Identity(),
        load or (lambda plan: Units.from_rows(ROWS)),
        Consents(folder, automatic=automatic),
        AuditLog(folder / "audit.jsonl"),
        schema=schema or DataSchema.of(Units.from_rows(ROWS), Policy(population="p", **settings).adjacency),
        most_studies=studies,
        hold=hold,
        start=start,
        settle=settle,
        former=keys[1:],
    )


def tell(service: Service, plan: Plan, message: Message) -> Reply:
    return decode_reply(service.answer(bytes.fromhex(plan.digest()), encode(message)))


def refused(reply: Reply) -> ZerosumError:
    assert isinstance(reply, Refusal)
    return reply.error


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def more_rounds(plan: Plan) -> Plan:
    return replace(plan, releases=(replace(plan.releases[0], share=0.5),) * 2)
