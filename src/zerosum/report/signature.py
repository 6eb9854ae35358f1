"""Reports that are signed: a changed byte anywhere is found.

A file is its content and then a seal of one fixed form: for `report.json` the last entry of the object, for
`report.html` the last element of the body. The signature (Ed25519) covers the kind of file and every byte before the
seal; of the seal itself, each byte is fixed, a digit of the key or a digit of the signature, in lower case. So
either file stands for itself, and the page names the JSON that it was drawn from by its digest.
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

_ABOUT = b"zerosum report signature 1\0"
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
_LENGTHS = {kind: sum(map(len, parts)) + 64 + 128 for kind, parts in _SEALS.items()}


@dataclass(frozen=True)
class Signed:
    """A file whose signature holds: what was signed, and with which key. Whose key that is, is another question."""

    content: bytes
    key: str


def sign(content: bytes, kind: str, identity: Identity) -> bytes:
    """The content with its seal. A JSON object is given without its last brace."""
    opening, middle, closing = _SEALS[kind]
    signature = identity.sign(_ABOUT + kind.encode() + b"\0" + content)
    return content + opening + identity.public.hex().encode() + middle + signature.hex().encode() + closing


def check(sealed: bytes, kind: str) -> Signed:
    """What a file holds, if not a byte of it was changed since it was signed."""
    content, seal = sealed[: -_LENGTHS[kind]], sealed[-_LENGTHS[kind] :]
    found = _FORMS[kind].fullmatch(seal)
    if found is None:
        raise CheckFailed("this is no report that was signed, or its end was changed")
    key, signature = (each.decode() for each in found.groups())
    try:
        check_signature(bytes.fromhex(key), bytes.fromhex(signature), _ABOUT + kind.encode() + b"\0" + content)
    except Forged:
        raise CheckFailed("the report was changed since it was signed") from None
    return Signed(content, key)


def kind_of(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _SEALS:
        raise BadInput(f"a report is a .html or a .json file, or the folder of both, not {path.name!r}")
    return kind


def key_place() -> Path:
    return state_folder() / "coordinator.key"


def check_coordinator(plan: Plan) -> None:
    """Refuse, before anything is spent, a key that could not sign this plan's report; none is made yet."""
    if key_place().exists() or plan.coordinator is not None:
        coordinator_key(plan)


def coordinator_key(plan: Plan | None = None, path: Path | None = None) -> Identity:
    """The key with which whoever asks signs reports, made once and kept in the user's state folder, or elsewhere.
    Refused where the plan pins another one."""
    identity = keep_identity(path or key_place())
    if plan is not None and plan.coordinator not in (None, identity.public.hex()):
        raise Refused(
            "the plan pins the key of another coordinator than this one's: its report could not be verified; run it "
            "there, or plan it with the identity that 'zerosum coordinator init' prints here"
        )
    return identity
