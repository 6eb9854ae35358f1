"""A steward's decision about a plan, wherever it is made: on the command line, at the terminal, on the page.

Tested in tests/site/test_service.py.
"""

from __future__ import annotations

from contextlib import suppress

from zerosum.errors import BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.site.audit_log import AuditLog
from zerosum.site.consents import Consents, Decision


def decide(
    consents: Consents,
    log: AuditLog,
    digest: str,
    decision: Decision,
    *,
    plan: Plan | None = None,
    reason: str = "",
    where: str = "",
) -> str:
    """Write a decision down, durably, and into the audit log; what was decided, in words. A plan that did not come yet
    may be given as it was read from a file. The coordinator is told the reason of a refusal."""
    if plan is None:
        with suppress(BadInput):  # it did not come yet
            plan = consents.plan(digest)
    consents.decide(digest, decision, reason)
    if decision == "approved" and plan is not None:
        consents.remember(plan)
    words = f"the steward {decision} the plan {digest}{f', {where}' if where else ''}"
    if said := consents.reason(digest):
        words += f": {said}"
    try:
        log.write("decided", words, plan)
    except Refused as error:
        raise Refused(f"{words}, and that holds; but {error}", detail=error.detail) from error
    return words
