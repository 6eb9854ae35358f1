"""Reports that are changed, mixed up, signed by others, or of other plans."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.errors import BadInput, CheckFailed
from zerosum.kernel.plan import Plan
from zerosum.report.build import build_document, read_document, signed_files, site_copy, write_report
from zerosum.report.document import Cloud, Clouds, Section
from zerosum.report.page import render
from zerosum.report.record import Result
from zerosum.report.signature import check, coordinator_key, sign
from zerosum.report.verify import check_key, check_plan, check_policy, verify
from zerosum.secagg.keys import Identity
from zerosum.site.policy import Policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    carry_out(make("secure-sum"), make_sites(tmp_path)).write(tmp_path / "result")
    write_report(tmp_path / "result")
    return tmp_path / "result"


def plan_of(folder: Path) -> Plan:
    return Plan.from_json((folder / "plan.json").read_bytes())


def resign(folder: Path, identity: Identity, **changes: Any) -> None:
    """The report with other words, signed again with another key."""
    document = replace(read_document(check((folder / "report.json").read_bytes(), "json").content), **changes)
    page, text = signed_files(replace(document, coordinator=identity.public.hex()), identity)
    (folder / "report.html").write_bytes(page)
    (folder / "report.json").write_bytes(text)


def test_verify_report_by_either_file_or_folder_succeeds(folder: Path) -> None:
    own = coordinator_key().public.hex()
    for path in (folder, folder / "report.html", folder / "report.json"):
        found = verify(path)
        assert found.key == own
        assert set(found.files) == {"report.html", "report.json", "result.json", "estimate.npz", "plan.json"}
        assert found.absent == ()
    alone = folder.parent / "mailed"
    alone.mkdir()
    shutil.copy(folder / "report.html", alone / "from-anna.html")
    found = verify(alone / "from-anna.html")
    assert found.document is None
    assert found.absent == ("from-anna.json",)
    shutil.copy(folder / "report.json", alone / "from-anna.json")
    found = verify(alone / "from-anna.html")
    assert found.absent == ("result.json", "estimate.npz", "plan.json")


@pytest.mark.parametrize("name", ["report.html", "report.json", "result.json", "estimate.npz", "plan.json"])
@pytest.mark.parametrize("by", ["", "report.html", "report.json"])
def test_verify_changed_byte_of_any_file_is_refused(folder: Path, name: str, by: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckFailed, match=name.replace(".", r"\.")):
        verify(folder / by)


def test_verify_files_of_two_reports_are_refused(folder: Path, tmp_path: Path) -> None:
    carry_out(make("secure-sum"), make_sites(tmp_path / "other")).write(tmp_path / "second")
    write_report(tmp_path / "second")
    shutil.copy(tmp_path / "second" / "report.json", folder / "report.json")
    with pytest.raises(CheckFailed, match="JSON"):
        verify(folder)


def test_verify_report_signed_again_passes_integrity_but_not_pinned_keys(folder: Path) -> None:
    mallory, plan = Identity(), plan_of(folder)
    resign(folder, mallory, summary="All is well.")
    found = verify(folder)  # integrity: that is all it can say
    assert found.key == mallory.public.hex()
    ours = coordinator_key().public.hex()
    with pytest.raises(CheckFailed, match="--key"):
        check_key(found, ours)
    with pytest.raises(CheckFailed, match="key"):
        check_plan(verify(folder), replace(plan, coordinator=ours))
    with pytest.raises(CheckFailed, match="policy"):
        check_policy(found, Policy(population="p", coordinator=ours))


def test_check_plan_and_policy_compare_pinned_keys(folder: Path) -> None:
    found, plan, ours = verify(folder), plan_of(folder), coordinator_key().public.hex()
    assert not check_plan(found, plan)  # it pins none
    assert check_plan(found, replace(plan, coordinator=ours))  # the same but for keys
    assert not check_policy(found, Policy(population="p"))
    assert check_policy(found, Policy(population="p", coordinator=(Identity().public.hex(), ours)))
    check_key(found, ours)
    with pytest.raises(CheckFailed, match="plan"):
        check_plan(found, make("secure-sum"))
    (folder / "report.json").unlink()
    with pytest.raises(BadInput, match=r"report\.json"):
        check_plan(verify(folder), plan)


def test_check_plan_report_promising_more_than_plan_is_refused(folder: Path) -> None:
    document = verify(folder).document
    assert document is not None
    plan, key = plan_of(folder), coordinator_key()
    privacy = json.loads(json.dumps(dict(document.privacy)))
    privacy["per_site"][0]["epsilon"] = 0.1
    resign(folder, key, privacy=privacy)
    with pytest.raises(CheckFailed, match="promise"):
        check_plan(verify(folder), plan)
    for wrong in ({"per_site": None}, {"per_site": [1, 2, 3, 4]}, {"colluders": 3}):
        resign(folder, key, privacy=dict(document.privacy) | wrong)
        with pytest.raises(CheckFailed, match="promise"):
            check_plan(verify(folder), plan)


def test_verify_page_differing_from_json_is_not_redrawn(folder: Path) -> None:
    assert verify(folder).redrawn
    key, text = coordinator_key(), (folder / "report.json").read_bytes()
    document = read_document(check(text, "json").content)
    other = render(replace(document, summary="It cost nobody anything."), hashlib.sha256(text).hexdigest())
    (folder / "report.html").write_bytes(sign(other, "html", key))
    assert verify(folder).redrawn is False
    (folder / "report.html").unlink()
    assert verify(folder).redrawn is None


def test_verify_with_picture_that_cannot_be_drawn_is_not_redrawn(folder: Path) -> None:
    odd = Clouds("t", "a", "x", "y", (None, None), (None, None), (Cloud("1", None, None),))
    document = read_document(check((folder / "report.json").read_bytes(), "json").content)
    text = sign(
        replace(document, sections=(Section("s", "S", (odd,)),)).to_json().removesuffix(b"\n}"),
        "json",
        coordinator_key(),
    )
    (folder / "report.json").write_bytes(text)
    page = render(document, hashlib.sha256(text).hexdigest())
    (folder / "report.html").write_bytes(sign(page, "html", coordinator_key()))
    assert verify(folder).redrawn is False


def test_verify_site_copy_has_key_of_site(folder: Path) -> None:
    result, site = Result.read(folder), Identity()
    ledger: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "cap": None, "left": None, "studies": []}
    copy = site_copy(build_document(result, {}, "x"), "s1", site.public.hex(), ledger)
    page, text = signed_files(copy, site)
    own = folder.parent / "own"
    own.mkdir()
    (own / "report.html").write_bytes(page)
    (own / "report.json").write_bytes(text)
    found = verify(own)
    assert found.site == "s1"
    assert verify(folder).site == ""
    sites = tuple(replace(each, identity=site.public.hex()) for each in result.plan.sites)
    assert check_plan(found, replace(result.plan, sites=sites))
    with pytest.raises(CheckFailed, match="key"):
        check_plan(found, result.plan)
    assert check_policy(found, Policy(population="p", roster={"s1": site.public.hex()}))
    assert not check_policy(found, Policy(population="p", coordinator=site.public.hex()))  # no coordinator's


def test_verify_place_without_report_is_refused(tmp_path: Path) -> None:
    for path, word in (
        (tmp_path, r"report\.json"),
        (tmp_path / "report.html", r"report\.html"),
        (tmp_path / "a.txt", r"\.html"),
    ):
        with pytest.raises(BadInput, match=word):
            verify(path)
