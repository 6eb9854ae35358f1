"""Certificates for keys that stay where they were made, by FLARE's own tools (`make test-flare`)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from helpers.deployment import NAMES, Deployment
from zerosum.cli import _run
from zerosum.errors import BadInput, Forged, Refused
from zerosum.flare import certificates
from zerosum.flare.certificates import Request
from zerosum.flare.jobs import harden
from zerosum.secagg.keys import Identity
from zerosum.study import Study

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")


def authority(folder: Path, name: str = "hospitals") -> tuple[Path, Path]:
    """A certificate authority that nobody made with FLARE."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=900))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "ca.pem").write_bytes(made.public_bytes(encoding))
    (folder / "ca.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return folder / "ca.pem", folder / "ca.key"


def private_keys(folder: Path) -> set[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    return {str(path.relative_to(folder)) for path in found}


@pytest.mark.parametrize("own", [False, True])
def test_flare_certificates_from_request_to_kit_keep_keys_at_sites(own: bool, tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "sites")
    study, project = deployment.study(), tmp_path / "project"
    name = "hospitals" if own else "zerosum"
    for site in NAMES[:2]:
        file = str(deployment.folder / site / "site.toml")
        assert _run(["site", "request", "--site", file, "--project", name]) == 0
        assert private_keys(deployment.folder / site) == {f"tls/{site}.key"}
        assert (deployment.folder / site / "tls" / f"{site}.key").stat().st_mode & 0o777 == 0o600
        assert _run(["site", "request", "--site", file]) == 2  # never over another one
    words = ["provision", str(study), "--server", "localhost", "--port", "8443", "--out", str(project)]
    words += ["--admin", "lead@hub.org", "--days", "365"]
    asked = [str(deployment.folder / site / f"{site}.request.json") for site in NAMES[:2]]
    if own:
        certificate, key = authority(tmp_path)
        words += ["--ca-certificate", str(certificate), "--ca-key", str(key)]
    assert _run([*words, "--request", asked[0]]) == 0
    assert _run([*words, "--request", asked[1]]) == 0  # later, into the same project
    assert _run([*words, "--request", asked[1]]) == 2  # one certificate for a site
    kits = {"kits/localhost/startup/server.key", "kits/lead@hub.org/startup/client.key"}
    assert private_keys(project) == {"ca/rootCA.key"} | kits
    told = certificates.fingerprint(project)
    for site in NAMES[:2]:
        home, signed = deployment.folder / site, project / "signed" / f"{site}.signed.zip"
        wrong = told[:-2] + ("00" if told[-2:] != "00" else "11")
        assert _run(["site", "kit", str(signed), "--fingerprint", wrong, "--site", str(home / "site.toml")]) == 2
        assert not (home / "kit").exists()
        assert _run(["site", "kit", str(signed), "--fingerprint", told, "--site", str(home / "site.toml")]) == 0
        assert harden(home / "kit") == []  # it was
        left = certificates.expires(home / "kit") - datetime.now(UTC)
        assert timedelta(days=360) < left < timedelta(days=366)
        made = x509.load_pem_x509_certificate((home / "kit" / "startup" / "client.crt").read_bytes())
        root = x509.load_pem_x509_certificate((project / "ca" / "rootCA.pem").read_bytes())
        made.verify_directly_issued_by(root)
    other = deployment.folder / NAMES[2]
    assert _run(["site", "request", "--site", str(other / "site.toml"), "--project", name]) == 0
    theirs = ["site", "kit", str(project / "signed" / "north.signed.zip"), "--fingerprint", told]
    assert _run([*theirs, "--site", str(other / "site.toml")]) == 2  # of another site


def test_flare_request_of_unknown_or_renamed_site_gets_no_certificate(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "sites")
    study, project = Study.load(deployment.study()), tmp_path / "project"
    roster = {site.name: site.identity for site in study.sites}
    home, key = deployment.folder / "north", deployment.site("north").keep_identity()
    path = certificates.request(home, "north", key)
    asked = Request.read(path)
    told = certificates.found(project, "localhost", 8443, "lead@hub.org", days=30)
    assert told == certificates.fingerprint(project)
    stranger = Identity()
    part = certificates._participant(tmp_path, "zerosum", {"name": "north", "type": "server", "org": "north"})
    certificates._ask("cert", "request", "-p", part, "--out", tmp_path / "tls", home=tmp_path)
    for wrong in (
        Request.of("north", key, (tmp_path / "tls" / "north.request.zip").read_bytes()),  # to be the server
        Request.of("north", stranger, asked.request),  # another key
        Request.of("stranger", key, asked.request),  # not on the roster
        Request.of("east", deployment.site("east").keep_identity(), asked.request),  # another's request as one's own
    ):
        with pytest.raises((Refused, BadInput)):
            certificates.approve(project, roster, wrong, days=30)
    assert list((project / "signed").glob("*")) == []
    path.write_bytes(replace(asked, site="east").to_json())
    with pytest.raises(Forged):
        Request.read(path)
    for text in ("", "{}", json.dumps({"site": "north", "identity": "x", "signature": "", "request": ""})):
        path.write_text(text)
        with pytest.raises(BadInput):
            Request.read(path)
    assert certificates.approve(project, roster, asked, days=30).exists()
    with pytest.raises(BadInput, match="project"):
        certificates.approve(tmp_path, roster, asked, days=30)


def test_flare_bad_authority_is_refused(tmp_path: Path) -> None:
    certificate, key = authority(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = authority(tmp_path / "other")
    (tmp_path / "no.pem").write_text("nothing")
    for pair in ((certificate, other), (certificate, tmp_path / "no.pem"), (tmp_path / "no.pem", key)):
        with pytest.raises(BadInput):
            certificates.found(tmp_path / "project", "localhost", 8443, "lead@hub.org", days=30, ca=pair)
        assert not (tmp_path / "project").exists()
