"""A steward's decision about a plan, from the command line, the terminal, the web page or the desk."""

from __future__ import annotations

from contextlib import suppress

from zerosum.errors import BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.site.audit_log import AuditLog, os_user
from zerosum.site.decisions import Consents, Decision


def decide(
    consents: Consents,
    log: AuditLog,
    digest: str,
    decision: Decision,
    *,
    plan: Plan | None = None,
    reason: str = "",
    where: str = "",
    user: str = "",
) -> str:
    """Store a decision durably and write it to the audit log; return it in words.

    Parameters
    ----------
    consents, log:
        The store of decisions, and the audit log.
    digest:
        The plan's digest.
    decision:
        "approved" or "refused".
    plan:
        The plan, if it was read from a file and has not arrived yet.
    reason:
        Why it was refused. The coordinator receives the reason.
    where:
        Where the decision was made, for the audit log.
    user:
        The user of the operating system who decided; by default the one of this process.
    """
    user = user or os_user()
    # The plan is needed for the study's name in the log; a decision may also be made by the digest alone, before the
    # plan arrives.
    if plan is None:
        with suppress(BadInput):  # the plan has not arrived yet
            plan = consents.plan(digest)
    # The decision before the log: a decision that is not logged is visible as an error here, while a logged decision
    # that was not stored would be a false record.
    consents.decide(digest, decision, reason, user)
    if decision == "approved" and plan is not None:
        consents.remember(plan)
    words = f"the steward {decision} the plan {digest}{f', {where}' if where else ''}"
    if stored_reason := consents.reason(digest):
        words += f": {stored_reason}"
    try:
        log.write("decided", words, plan, user=user)
    except Refused as error:
        raise Refused(f"{words}, and that holds; but {error}", detail=error.detail) from error
    return words
