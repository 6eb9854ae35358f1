"""Ed25519 signatures of reports: every changed byte is detected.

A file is its content followed by a seal of fixed form. In `report.json` the seal is the last entry of the object, in
`report.html` the last element of the body. The signature covers the kind of file and every byte before the seal. Each
byte of the seal is fixed, or a lower-case hexadecimal digit of the key or signature, so the seal cannot be changed
unnoticed either. Each file can be verified alone. The page contains the digest of the JSON that it was rendered from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zerosum.errors import BadInput, CheckFailed, Forged, Refused
from zerosum.kernel.plan import Plan
from zerosum.secagg.keys import Identity, check_signature
from zerosum.site.identity import keep_identity
from zerosum.site.policy import state_folder

# Domain separation: signatures of reports are valid for no other purpose.
_ABOUT = b"zerosum report signature 1\0"
# Fixed parts of the seal: before the key, between key and signature, after the signature.
_SEALS = {
    "json": (b',\n "signature": {"key": "', b'", "ed25519": "', b'"}\n}\n'),
    "html": (
        b'<script type="application/json" id="signature">{"key": "',
        b'", "ed25519": "',
        b'"}</script>\n</body></html>\n',
    ),
}
_FORMS = {
    kind: re.compile(re.escape(a) + b"([0-9a-f]{64})" + re.escape(b) + b"([0-9a-f]{128})" + re.escape(c))
    for kind, (a, b, c) in _SEALS.items()
}
# Length of the seal in bytes: fixed parts, 64 digits of the key and 128 of the signature.
_LENGTHS = {kind: sum(map(len, parts)) + 64 + 128 for kind, parts in _SEALS.items()}


@dataclass(frozen=True)
class SignedFile:
    """Content and key of a file with a valid signature. The owner of the key is not checked here."""

    content: bytes
    key: str


def sign(content: bytes, kind: str, identity: Identity) -> bytes:
    """Append the seal to a content.

    Parameters
    ----------
    content : bytes
        The file without its seal. A JSON object is passed without its last brace.
    kind : "json" or "html"
        Form of the seal.
    identity : Identity
        Signing key.
    """
    opening, middle, closing = _SEALS[kind]
    signature = identity.sign(_ABOUT + kind.encode() + b"\0" + content)
    return content + opening + identity.public.hex().encode() + middle + signature.hex().encode() + closing


def check(sealed: bytes, kind: str) -> SignedFile:
    """Verify a signed file.

    Parameters
    ----------
    sealed : bytes
        The whole file.
    kind : "json" or "html"
        Form of the seal.

    Raises
    ------
    CheckFailed
        If any byte was changed, or the file is not a signed report.
    """
    # The seal has a fixed length, so that its position is not read from the file.
    content, seal = sealed[: -_LENGTHS[kind]], sealed[-_LENGTHS[kind] :]
    # A match of the whole seal, byte for byte: a second form of the same signature would allow a changed file.
    match = _FORMS[kind].fullmatch(seal)
    if match is None:
        raise CheckFailed("this is no report that was signed, or its end was changed")
    key, signature = (each.decode() for each in match.groups())
    try:
        check_signature(bytes.fromhex(key), bytes.fromhex(signature), _ABOUT + kind.encode() + b"\0" + content)
    except Forged:
        raise CheckFailed("the report was changed since it was signed") from None
    return SignedFile(content, key)


def kind_of(path: Path) -> str:
    """ "html" or "json" from the file name. Raises `BadInput` for other suffixes."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _SEALS:
        raise BadInput(f"a report is a .html or a .json file, or the folder of both, not {path.name!r}")
    return kind


def key_place() -> Path:
    """Path of the coordinator's signing key."""
    return state_folder() / "coordinator.key"


def check_coordinator(plan: Plan) -> None:
    """Raise `Refused` if this coordinator's key is not the one pinned in the plan, before anything is spent. No key is
    created for a plan without a pinned key."""
    if key_place().exists() or plan.coordinator is not None:
        coordinator_key(plan)


def coordinator_key(plan: Plan | None = None, path: Path | None = None) -> Identity:
    """Signing key of the coordinator, created on first use.

    Parameters
    ----------
    plan : Plan, optional
        A plan that may pin the key.
    path : Path, optional
        File of the key; by default in the user's state folder.

    Raises
    ------
    Refused
        If the plan pins another key.
    """
    # The file is readable by its owner only; who can read it can sign reports in the coordinator's name.
    identity = keep_identity(path or key_place())
    # A report signed with another key could not be verified against the plan.
    if plan is not None and plan.coordinator not in (None, identity.public.hex()):
        raise Refused(
            "the plan pins the key of another coordinator than this one's: its report could not be verified; run it "
            "there, or plan it with the identity that 'zerosum coordinator init' prints here"
        )
    return identity
