"""Keys and certificates of a federation, whose private keys stay where they were made. No Flower is needed."""

from __future__ import annotations

import json
import ssl
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.deployment import NAMES, Deployment
from zerosum.cli import _run
from zerosum.errors import BadInput, BadParameter, Forged, Refused
from zerosum.flower import keys
from zerosum.flower.keys import NodeRequest
from zerosum.secagg.keys import Identity


def private_keys(folder: Path) -> set[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    return {str(path.relative_to(folder)) for path in found}


def asked(name: str = "north", identity: Identity | None = None) -> NodeRequest:
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return NodeRequest.of(name, identity or Identity(), public.public_bytes(*form))


def handshake(folder: Path, host: str) -> bool:
    """Whether a client that knows the authority only accepts the SuperLink's certificate for this host."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    a, b, c, d = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(a, b, server_hostname=host), server.wrap_bio(c, d, server_side=True)
    done = set()
    for _ in range(6):
        for at, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(at)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            c.write(b.read())
            a.write(d.read())
    return done == {0, 1}


def test_flower_provision_keeps_keys_of_nodes_at_sites(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "sites")
    study, folder = deployment.study(), tmp_path / "federation"
    requests = []
    for site in NAMES[:2]:
        file = str(deployment.folder / site / "site.toml")
        assert _run(["flower", "request", "--site", file]) == 0
        assert private_keys(deployment.folder / site) == {"flower/node.key"}
        assert (deployment.folder / site / "flower" / "node.key").stat().st_mode & 0o777 == 0o600
        assert _run(["flower", "request", "--site", file]) == 2  # never over another one
        requests.append(str(deployment.folder / site / f"{site}.flower.json"))
    words = ["flower", "provision", str(study), "--out", str(folder), "--request"]
    assert _run([*words, requests[0]]) == 2  # without a host name
    assert not folder.exists()
    assert _run([*words, requests[0], "--server", "hub.example.org", "--port", "8443"]) == 0
    assert _run([*words, requests[1]]) == 0  # later, into the same federation
    assert _run([*words, requests[1]]) == 2  # one node for a site
    assert private_keys(folder) == {"ca.key", "server.key"}
    for secret in ("ca.key", "server.key", "superexec.secret"):
        assert (folder / secret).stat().st_mode & 0o777 == 0o600
    known = keys.nodes(folder)
    assert list(known) == list(NAMES[:2])
    for site in NAMES[:2]:
        key = serialization.load_ssh_private_key((deployment.folder / site / "flower" / "node.key").read_bytes(), None)
        form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        assert key.public_key().public_bytes(*form).decode() == known[site]
        public = serialization.load_ssh_public_key((folder / "nodes" / f"{site}.pub").read_bytes())
        assert public.public_bytes(*form).decode() == known[site]
    connection = tomllib.loads((folder / "home" / "config.toml").read_text())["superlink"]["zerosum"]
    assert connection["address"] == "127.0.0.1:8000"  # the administrator works on the hub


def test_flower_certificate_is_accepted_for_its_host_and_this_machine_only(tmp_path: Path) -> None:
    keys.found(tmp_path / "made", "hub.example.org", 8443, days=30)
    assert [handshake(tmp_path / "made", host) for host in ("hub.example.org", "localhost", "127.0.0.1")] == [True] * 3
    assert not handshake(tmp_path / "made", "other.example.org")


def test_flower_own_authority_signs_and_its_key_is_not_stored(tmp_path: Path) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hospitals")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(10))
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = builder.sign(key, hashes.SHA256())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "ca.pem").write_bytes(made.public_bytes(encoding))
    (tmp_path / "ca.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    keys.found(tmp_path / "made", "localhost", 8443, days=9, ca=(tmp_path / "ca.pem", tmp_path / "ca.key"))
    assert handshake(tmp_path / "made", "localhost")
    assert private_keys(tmp_path / "made") == {"server.key"}
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ca.key").write_bytes(other.private_bytes(encoding, form, serialization.NoEncryption()))
    with pytest.raises(BadInput, match="certificate"):
        keys.found(tmp_path / "again", "localhost", 8443, days=9, ca=(tmp_path / "ca.pem", tmp_path / "ca.key"))
    assert not (tmp_path / "again").exists()


def test_flower_request_of_a_stranger_is_refused(tmp_path: Path) -> None:
    folder, identity = tmp_path / "made", Identity()
    keys.found(folder, "localhost", 8443, days=30)
    request, roster = asked("north", identity), {"north": identity.public.hex(), "east": Identity().public.hex()}
    with pytest.raises(Refused, match="roster"):
        keys.approve(folder, {"east": identity.public.hex()}, request)
    with pytest.raises(Refused, match="identity"):
        keys.approve(folder, {"north": Identity().public.hex()}, request)
    path = tmp_path / "north.flower.json"
    path.write_bytes(replace(request, request=asked().request).to_json())
    with pytest.raises(Forged):
        NodeRequest.read(path)
    path.write_text(json.dumps({"site": "north"}))
    with pytest.raises(BadInput, match="request"):
        NodeRequest.read(path)
    with pytest.raises(BadInput, match="public key"):
        keys.approve(folder, roster, NodeRequest.of("north", identity, b"no key"))
    small = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = small.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(Refused, match="kind"):
        keys.approve(folder, roster, NodeRequest.of("north", identity, pem))
    assert keys.nodes(folder) == {}
    keys.approve(folder, roster, request)
    # One key under two names would make two sites of one node.
    other = Identity()
    with pytest.raises(Refused, match="another site"):
        keys.approve(folder, {"east": other.public.hex()}, NodeRequest.of("east", other, request.request))


def test_flower_purpose_of_a_signature_is_not_that_of_a_flare_certificate() -> None:
    from zerosum.flare.certificates import Request

    request = asked()
    with pytest.raises(Forged):
        Request(request.site, request.identity, request.request, request.signature).check()


def test_flower_scripts_switch_off_what_flower_does_by_itself(tmp_path: Path) -> None:
    keys.found(tmp_path / "made", "hub.example.org", 8443, days=30)
    for name in ("superlink.sh", "superexec.sh"):
        text = (tmp_path / "made" / name).read_text()
        assert all(f"export {key}={value}\n" in text for key, value in keys.QUIET.items())
        assert "--superexec-auth-secret-file" in text
        assert "--insecure" not in text
    text = (tmp_path / "made" / "superlink.sh").read_text()
    assert all(word in text for word in ("--enable-supernode-auth", "--isolation process"))


def test_flower_bad_host_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="host"):
        keys.found(tmp_path / "made", "hub; rm", 8443, days=30)
    with pytest.raises(BadInput, match="provision"):
        keys.nodes(tmp_path)
