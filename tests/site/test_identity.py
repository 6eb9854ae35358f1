"""Keys in files: read by their owner alone, replaced without a moment in which there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerosum.errors import BadInput, Forged
from zerosum.secagg.keys import Identity
from zerosum.site.identity import Rotation, former_identities, keep_identity, rotate_identity


def test_identity_key_readable_by_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    keep_identity(path)
    path.chmod(0o640)
    with pytest.raises(BadInput, match="--lost"):
        keep_identity(path)
    old, new = rotate_identity(path, lost=True)
    assert old is not None
    assert keep_identity(path).public == new.public != old.public
    assert path.stat().st_mode & 0o777 == 0o600
    assert former_identities(path) == []  # whoever read it could sign with it


def test_identity_replaced_key_is_kept_as_former_and_lost_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    first = keep_identity(path)
    old, second = rotate_identity(path)
    assert old is not None
    assert old.public == first.public
    assert [each.public for each in former_identities(path)] == [first.public]
    rotate_identity(path)
    assert {each.public for each in former_identities(path)} == {first.public, second.public}
    path.write_bytes(b"short")
    with pytest.raises(BadInput, match="damaged"):
        rotate_identity(path)
    assert rotate_identity(path, lost=True)[0] is None
    path.unlink()
    with pytest.raises(BadInput, match=r"identity.key"):
        rotate_identity(path)
    assert rotate_identity(path, lost=True)[1].public == keep_identity(path).public


def test_identity_interrupted_rotation_keeps_old_key_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    first = keep_identity(path)
    begun = keep_identity(tmp_path / "identity.key.new")  # as a kill in the middle leaves it
    (tmp_path / f"identity.key.former-{first.public.hex()[:8]}").hardlink_to(path)
    assert keep_identity(path).public == first.public
    _, new = rotate_identity(path)
    assert keep_identity(path).public == new.public == begun.public
    assert [each.public for each in former_identities(path)] == [first.public]
    keep_identity(tmp_path / "identity.key.new")
    begun = keep_identity(tmp_path / "identity.key.new")
    assert rotate_identity(path, lost=True)[1].public != begun.public  # whoever read one key may have read the other


def test_rotation_statement_needs_signatures_of_both_keys() -> None:
    old, new, other = Identity(), Identity(), Identity()
    statement = Rotation.of("north", old, new)
    assert Rotation.from_json(statement.to_json()) == statement
    told = json.loads(statement.to_json())
    for change in (
        {"site": "east"},
        {"new": other.public.hex()},
        {"old": other.public.hex()},
        {"signed_old": told["signed_new"]},
        {"made": "yesterday"},
    ):
        with pytest.raises(Forged):
            Rotation.from_json(json.dumps(told | change).encode())
    for text in (
        b"",
        b"{}",
        b"[]",
        b"3",
        json.dumps(told | {"old": 3}).encode(),
        json.dumps(told | {"old": "x"}).encode(),
    ):
        with pytest.raises(BadInput):
            Rotation.from_json(text)
