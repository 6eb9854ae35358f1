"""Summaries of a ledger for its steward: each study with its question, time, columns and cost, and the remaining
budget.
"""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from typing import Any, Literal

from zerosum import html
from zerosum.errors import ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Cap, Entry, Total, left_under

Consented = Literal["automatic", "steward"]

_AUTOMATIC_IS_EXPOSED = "0.2"  # versions under which a coordinator could learn exact facts from such a site
_LISTED = 50  # columns that an entry names; of more, the first, the last and how many
_DELTA = 1e-5  # where the caller gives none


def in_words(plan: Plan, consent: Consented | None = None) -> dict[str, Any]:
    """What a ledger writes down of a study: everything in it is in the plan, and public, but for the local user and
    who consented (None: the site is no process of its own, and consent was not asked for).

    Parameters
    ----------
    plan : Plan
        The plan that is charged.
    consent : str, optional
        "automatic" or "steward".

    Returns
    -------
    dict
        JSON-compatible. Long lists are shortened, so that one entry stays small beside thousands of columns.
    """
    question = plan.question
    # Parameters that bound or select values. Others, such as a number of rounds, do not change what is asked about
    # people.
    known = {"lower", "upper", "clip", "edges", "values", "ranges", "levels", "by", "events", "groups"}
    few = question.n_columns <= _LISTED
    columns = list(question.columns) if few else [question.columns[0], question.columns[-1]]
    return {
        "algorithm": plan.algorithm,
        "columns": columns,
        "n_columns": question.n_columns,
        "bounds": {name: value for name, value in question.parameters.items() if name in known and value is not None}
        if few
        else {},
        "preprocessing": dict(question.preprocessing) if few or len(question.preprocessing) < _LISTED else {},
        "files": dict(question.files),
        **({"purpose": question.purpose} if question.purpose else {}),
        **({"permit": dict(question.permit)} if question.permit else {}),
        "sites": [site.name for site in plan.sites],
        "scheme": plan.scheme.name,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "public_digest": plan.public_digest,
        "user": _user(),
        **({} if consent is None else {"consent": consent}),
    }


@cache
def _user() -> str:
    """Name of the account of this machine under which the contribution was made; empty for an account without a
    name.
    """
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""


def statement(ledger: Ledger, cap: Cap | None = None, delta: float | None = None) -> dict[str, Any]:
    """Content of a ledger as a dict: the total against the cap (a policy's, or the last entry's), and each study.

    Parameters
    ----------
    ledger : Ledger
        An open or inspected ledger.
    cap : Cap, optional
        The policy's cap.
    delta : float, optional
        The delta of all epsilons; by default the cap's, else 1e-5.
    """
    entries, doubts = ledger.entries(), ledger.doubts()
    # An auditor has the ledger and not the policy; the last entry has the cap that was in force then.
    cap = cap or next((each.cap for each in reversed(entries) if each.cap is not None), None)
    delta = delta if delta is not None else (cap.delta if cap is not None else _DELTA)
    # Steps of a phase by the entry that paid for them; the entry itself is the first step.
    drawn = Counter(step.reservation for step in ledger.draws())
    spent = ledger.epsilon(delta)
    studies: dict[str, list[int]] = {}
    for at, entry in enumerate(entries):
        studies.setdefault(entry.spend.study, []).append(at)
    lines = []
    for study, places in studies.items():
        mine = [entries[at] for at in places]
        asked: Mapping[str, Any] = next((each.asked for each in mine if each.asked is not None), {})
        total = Total().plus((each.spend, each.charged_mu) for each in mine)
        consent = _consent(ledger, mine, asked)
        lines.append(
            {
                "study": study,
                "first": mine[0].recorded,
                "last": mine[-1].recorded,
                "entries": len(mine),
                "statistics": sorted({each.spend.statistic for each in mine}),
                "epsilon": total.epsilon(delta),
                "plan": mine[0].plan,
                "asked": dict(asked),
                "consent": consent,
                "exposed": consent == "automatic" and any(map(_of_0_2, mine)),
            }
        )
    return {
        "ledger": str(ledger.path),
        "account": asdict(ledger.account),
        "epsilon": spent,
        "delta": delta,
        "mu": ledger.mu,
        "cap": None if cap is None else asdict(cap),
        "left": None if cap is None else left_under(ledger.total, cap),  # what one more study may cost
        "newest": None if ledger.unwitnessed else True,
        "studies": lines,
        "entries": [
            asdict(entry) | {"noise": entry.noise, "guarantee": doubt, "drawn": 1 + drawn[entry.number]}
            for entry, doubt in zip(entries, doubts, strict=True)
        ],
        "doubted": any(doubts),
    }


def _of_0_2(entry: Entry) -> bool:
    return (entry.version or "").startswith(_AUTOMATIC_IS_EXPOSED)


def _consent(ledger: Ledger, entries: Sequence[Entry], asked: Mapping[str, Any]) -> Consented | None:
    """How the site agreed to a study: as the ledger says, or for entries of 0.2, which did not say, as the decisions of
    the steward say where the ledger lies in a site's state folder. A plan without an approval there was agreed to
    automatically, or its approval was taken back since. None: unknown, or no consent was asked for."""
    # Entries of 0.2 do not have this field, and neither have sites that are no process of their own.
    if asked.get("consent") in ("automatic", "steward"):
        return "steward" if asked["consent"] == "steward" else "automatic"
    folder, plans = ledger.path.parent, {entry.plan for entry in entries if entry.plan is not None}
    if not (plans and any(map(_of_0_2, entries)) and (folder / "audit.jsonl").is_file()):
        return None
    consents = Consents(folder)
    with suppress(ZerosumError):  # decisions that cannot be read say nothing
        study, sites = entries[0].spend.study, asked.get("sites", [])
        approved = (consents.approved(digest, study, sites) for digest in plans)
        return "steward" if all(approved) else "automatic"
    return None


def shown(ledger: Ledger) -> str:
    """HTML table of a ledger for notebooks, one row for each study."""
    record = statement(ledger)
    lines = []
    for line in record["studies"]:
        asked = line["asked"]
        words = asked.get("user", ""), asked.get("algorithm", ""), ", ".join(asked.get("columns", []))
        lines.append((line["study"], line["first"][:16], *words, line["epsilon"]))
    title = f"{ledger.account.population}: epsilon {record['epsilon']:.4f} at delta {record['delta']:g}"
    if record["left"] is not None:
        title += f", cap {record['cap']['epsilon']:g}, left for one more study {record['left']:.4f}"
    return str(html.table(("study", "when", "who", "asked", "columns", "epsilon"), lines, title))
