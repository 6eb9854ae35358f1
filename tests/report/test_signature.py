"""A changed byte anywhere is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.errors import BadInput, CheckFailed
from zerosum.report.build import write_report
from zerosum.report.signature import check, kind_of, sign
from zerosum.secagg.keys import Identity

SMALL = {"json": b'{\n "a": 1', "html": b"<!DOCTYPE html><p>\xc3\xa9</p>"}


@pytest.mark.parametrize("kind", ["json", "html"])
def test_signature_any_changed_bit_or_byte_is_refused(kind: str) -> None:
    identity = Identity()
    sealed = sign(SMALL[kind], kind, identity)
    found = check(sealed, kind)
    assert found.content == SMALL[kind]
    assert found.key == identity.public.hex()
    for at in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[at] ^= 1 << bit
            with pytest.raises(CheckFailed):
                check(bytes(changed), kind)
        for other in (sealed[:at] + sealed[at + 1 :], sealed[:at] + b" " + sealed[at:]):
            with pytest.raises(CheckFailed):
                check(other, kind)


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_signature_of_report_any_changed_byte_is_refused(tmp_path: Path, name: str) -> None:
    carry_out(make("secure-sum"), make_sites(tmp_path)).write(tmp_path / "result")
    write_report(tmp_path / "result")
    sealed, kind = (tmp_path / "result" / name).read_bytes(), kind_of(Path(name))
    check(sealed, kind)
    rng = np.random.default_rng(0)
    places = rng.choice(len(sealed), 1000, replace=False)
    for at, flip in zip(places, rng.integers(1, 256, 1000), strict=True):
        changed = bytearray(sealed)
        changed[at] ^= int(flip)
        with pytest.raises(CheckFailed):
            check(bytes(changed), kind)


@pytest.mark.parametrize("odd", [b"", b"{}", b"\x00" * 10, b"x" * 10_000])
def test_signature_missing_is_refused(odd: bytes) -> None:
    for kind in SMALL:
        with pytest.raises(CheckFailed, match="signed"):
            check(odd, kind)


def test_signature_of_other_kind_of_file_is_refused() -> None:
    identity = Identity()
    page = sign(b"same", "html", identity)
    text = sign(b"same", "json", identity)
    with pytest.raises(CheckFailed):
        check(page, "json")
    digits = slice(-len(b'"}\n}\n') - 128, -len(b'"}\n}\n'))
    start = page.rindex(b'"ed25519": "') + len(b'"ed25519": "')
    forged = page[:start] + text[digits] + page[start + 128 :]
    with pytest.raises(CheckFailed, match="changed"):
        check(forged, "html")
    with pytest.raises(BadInput, match=r"\.json"):
        kind_of(Path("report.pdf"))
