"""Verification of signed reports: signatures, digests of files, keys pinned by plan or policy.

Three questions are kept apart. `verify` checks that no byte was changed since the signature, that page and JSON belong
together, and that the result's files beside them are the ones the report is about. `check_key`, `check_plan` and
`check_policy` check whose key it is. `check_plan` also computes the guarantee from the plan again and compares it with
the one in the report, since a signer may write anything.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zerosum.errors import BadInput, CheckFailed
from zerosum.kernel.plan import Plan
from zerosum.report.build import PAGE, TEXT, read_document
from zerosum.report.document import Document
from zerosum.report.page import render
from zerosum.report.record import privacy_report
from zerosum.report.signature import SignedFile, check, kind_of
from zerosum.site.policy import Policy

# Footer line of a page with the digest of its JSON.
_DIGEST_LINE = re.compile(rb"<p>SHA-256 of (?:report|dossier|summary)\.json <code>([0-9a-f]{64})</code></p>")


@dataclass(frozen=True)
class Verification:
    """Files with valid signatures. The `check_` functions decide whether the key is trusted."""

    key: str
    files: tuple[str, ...]
    absent: tuple[str, ...]  # files named in the report that are missing
    document: Document | None  # None without the JSON
    redrawn: bool | None  # whether rendering the JSON gives the page; None unless both exist

    @property
    def site(self) -> str:
        """Site of a private copy; empty for a coordinator's report."""
        return "" if self.document is None else self.document.site


def verify(path: Path) -> Verification:
    """Verify a report: page, JSON and the result's files beside them.

    Parameters
    ----------
    path : Path
        The page, the JSON, or their folder.

    Returns
    -------
    Verification
        Key, verified files, missing files, and the document.

    Raises
    ------
    CheckFailed
        If a byte was changed, or the files do not belong together.
    """
    places = _places(path)
    signed = {kind: _check_file(place) for kind, place in places.items()}
    # Page and JSON must have the same signer.
    keys = {each.key for each in signed.values()}
    if len(keys) > 1:
        raise CheckFailed("the page and its JSON were signed with different keys")
    if len(signed) == 2:
        # The last match is the footer; earlier ones could be text of the report.
        named = _DIGEST_LINE.findall(signed["html"].content)
        if not named or named[-1].decode() != hashlib.sha256(_read(places["json"])).hexdigest():
            raise CheckFailed("the page was not drawn from the JSON beside it, or one of them was changed")
    (key,) = keys
    files, absent = [place.name for place in places.values()], []
    document, redrawn = None, None
    if "json" in signed:
        document = read_document(signed["json"].content)
    else:  # the page contains its digest
        absent.append(places["html"].with_suffix(".json").name)
    if document is not None:
        if document.coordinator != key:
            raise CheckFailed("the report names another key than the one it is signed with")
        if "html" in signed:
            redrawn = _page_matches(document, hashlib.sha256(_read(places["json"])).hexdigest(), signed["html"].content)
        for name, digest in document.files.items():
            # The last part of the name only: a report from elsewhere must not make this program read other folders.
            beside = next(iter(places.values())).parent / Path(name).name
            if not beside.is_file():
                absent.append(name)
            elif hashlib.sha256(_read(beside)).hexdigest() != digest:
                raise CheckFailed(f"{beside.name!r} beside the report is not the file that the report is about")
            else:
                files.append(name)
    return Verification(key, tuple(files), tuple(absent), document, redrawn)


def _page_matches(document: Document, digest: str, page: bytes) -> bool:
    """Whether a page shows the content of its JSON. The signer of both files could have written different contents."""
    try:
        return render(document, digest) == page
    except (ArithmeticError, LookupError, TypeError, ValueError):  # inconsistent numbers in the document
        return False


def check_plan(verification: Verification, plan: Plan) -> bool:
    """Compare a report with a plan.

    The report must be of the same plan, state the same guarantee, and be signed with the key pinned for the coordinator
    or for the site of the copy.

    Returns
    -------
    bool
        Whether the plan pins a key.

    Raises
    ------
    CheckFailed
        If one of these conditions does not hold.
    """
    document = _document(verification, "a plan")
    # The approved proposal has no site keys yet, so either digest identifies the plan.
    if document.plan_digest != plan.digest() and document.proposal_digest != plan.proposal_digest:
        raise CheckFailed("the report is of another plan")
    if not _same_guarantee(document.privacy, privacy_report(plan).as_record()):
        raise CheckFailed("the report does not promise what the plan does")
    pinned = plan.coordinator
    if verification.site:
        pinned = next((site.identity for site in plan.sites if site.name == verification.site), None)
    return _check_pin(verification.key, () if pinned is None else (pinned,), "the plan")


def check_policy(verification: Verification, policy: Policy) -> bool:
    """Whether a policy pins the key of the coordinator, or of the site of the copy.

    Parameters
    ----------
    verification : Verification
        A verified report.
    policy : Policy
        A site's policy: `coordinators`, and for a site's copy the roster.

    Raises
    ------
    CheckFailed
        If the policy pins another key.
    """
    pins = policy.coordinators
    if verification.site:
        known = (policy.roster or {}).get(verification.site, ())
        pins = (known,) if isinstance(known, str) else tuple(known)
    return _check_pin(verification.key, pins, "the policy")


def check_key(verification: Verification, key: str) -> None:
    """Raise `CheckFailed` unless the report is signed with this key."""
    _check_pin(verification.key, (key,), "--key")


def _check_pin(key: str, pins: tuple[str, ...], whose: str) -> bool:
    """Whether keys are pinned. Raises `CheckFailed` if the key is not among them."""
    if pins and key not in pins:
        raise CheckFailed(f"the report is signed with another key than {whose} says")
    return bool(pins)


def _same_guarantee(stated: Mapping[str, object], known: Mapping[str, object]) -> bool:
    """Whether the guarantee in a report equals that of the plan; epsilon up to a relative error of 1e-6.

    Parameters
    ----------
    stated : mapping
        Privacy record of the report, from another party.
    known : mapping
        Privacy record computed here from the plan.
    """
    exact = (
        "epsilon",
        "delta",
        "unit",
        "adjacency",
        "colluders",
        "dropouts",
        "private",
        "rounds",
        "attempts",
        "scheme",
    )
    if any(stated.get(name) != known[name] for name in exact):
        return False
    theirs, ours = stated.get("per_site"), known["per_site"]
    if not (isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours)):
        return False
    for mine, line in zip(ours, theirs, strict=True):
        if not isinstance(line, Mapping) or line.get("site") != mine["site"]:
            return False
        # Versions of numerical libraries may change the last digits.
        epsilon, true = line.get("epsilon"), mine["epsilon"]
        # Also None and None: an infinite epsilon is null in JSON.
        if epsilon == true:
            continue
        if not (isinstance(epsilon, int | float) and isinstance(true, int | float)):
            return False
        if not math.isclose(epsilon, true, rel_tol=1e-6):
            return False
    return True


def _document(verification: Verification, what: str) -> Document:
    """The document. Raises `BadInput` without the JSON."""
    if verification.document is None:
        raise BadInput(f"to hold a report against {what}, its {TEXT} must lie beside it")
    return verification.document


def _places(path: Path) -> dict[str, Path]:
    """Existing page and JSON, from either path or from their folder."""
    if path.is_dir():
        for page, text in ((PAGE, TEXT), ("dossier.html", "dossier.json")):
            if places := {kind_of(place): place for place in (path / page, path / text) if place.is_file()}:
                return places
        raise BadInput(f"there is no {PAGE} and no {TEXT} in {path}, and no dossier")
    kind = kind_of(path)
    other = path.with_suffix(".json" if kind == "html" else ".html")
    return {kind: path} | ({kind_of(other): other} if other.is_file() else {})


def _check_file(path: Path) -> SignedFile:
    """Verify one file. Errors contain its name."""
    try:
        return check(_read(path), kind_of(path))
    except CheckFailed as error:
        raise error.about(path.name) from None


def _read(path: Path) -> bytes:
    """Read a file. Raises `BadInput`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
