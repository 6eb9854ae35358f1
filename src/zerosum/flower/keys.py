"""Keys and certificates of a Flower federation whose private keys stay where they were made.

    at a site       `request`: a key for the site's node; its public half, signed with the site's identity, is sent
    at the hub      `found`: an authority, new or one's own, the SuperLink's certificate, and scripts that start it
                    `approve`: nodes of the sites that are on the roster, under the identities it names

Flower's nodes have keys and no certificates: the SuperLink proves itself by its certificate, and a node by a signature
of its registered key. The key carries bytes and nothing else. Needs no Flower.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from zerosum.errors import BadInput, BadParameter, Refused
from zerosum.report.record import write_whole
from zerosum.secagg.keys import Identity
from zerosum.study.signed_request import SignedRequest

NODE_KEY = "node.key"
CONNECTION = "zerosum"  # name of the SuperLink in Flower's own configuration
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_CURVE = ec.SECP384R1()  # the curve of Flower's own documentation
_PEM, _OPENSSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
_OPEN = serialization.NoEncryption()
_SPKI = serialization.PublicFormat.SubjectPublicKeyInfo

# The largest request is one record of a message (`messages._PART`).
_NGINX = """\
# For the http section of nginx: sites reach the interface of nodes and nothing else of the SuperLink.
server {
    listen PORT ssl;
    server_name SERVER;
    ssl_certificate FOLDER/server.pem;
    ssl_certificate_key FOLDER/server.key;
    client_max_body_size 8m;
    location /v1/fleet/ {
        proxy_pass https://127.0.0.1:LOCAL;
        proxy_ssl_trusted_certificate FOLDER/ca.pem;
        proxy_ssl_name localhost;
        proxy_ssl_verify on;
    }
    location / {
        return 404;
    }
}
"""

# Flower sends statistics of its use, asks for updates and installs packages that an app names, each by default.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


_Signer = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class NodeRequest(SignedRequest):
    """The public key (PEM) of a site's Flower node, signed with the site's identity."""

    purpose: ClassVar[bytes] = b"zerosum flower node 1\0"
    what: ClassVar[str] = "site's request for a Flower node"


def request(folder: Path, name: str, identity: Identity) -> Path:
    """Make the key of a site's node, and the file to send, which has no private key in it.

    Parameters
    ----------
    folder : Path
        Folder of the site; the key is written to `folder`/flower.
    name : str
        Name of the site on the roster.
    identity : Identity
        Signs the request: the roster names this key, so the coordinator can tell whose request it is.

    Returns
    -------
    Path
        The file to send to the coordinator.
    """
    own, out = folder / "flower" / NODE_KEY, folder / f"{name}.flower.json"
    # A second key would make the registration of the first one useless, so nothing is overwritten.
    if own.exists() or out.exists():
        raise BadInput(f"{own} or {out} exists already: send what is there, or move both away for a new key")
    key = ec.generate_private_key(_CURVE)
    # The form that Flower's own node reads.
    write_whole(own, key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, _OPEN), private=True)
    write_whole(out, NodeRequest.of(name, identity, key.public_key().public_bytes(_PEM, _SPKI)).to_json())
    return out


def found(
    folder: Path, server: str, port: int, *, days: int, local: int = 8000, ca: tuple[Path, Path] | None = None
) -> None:
    """Found a federation: its authority, the SuperLink's key and certificate, and scripts that start its processes.

    Parameters
    ----------
    folder : Path
        New folder of the federation. It will hold private keys.
    server : str
        Host name or address of the SuperLink, as sites reach it.
    port : int
        The one port that sites connect to: that of the proxy of `nginx.conf`.
    days : int
        Validity of certificates.
    local : int, default=8000
        Port of the SuperLink on this machine.
    ca : tuple of Path, optional
        Certificate and key of an authority that exists already (PEM); by default a new authority is made.
    """
    if not _HOST.fullmatch(server):
        raise BadParameter("the SuperLink's host name has letters, digits, dots and hyphens")
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another place for the federation")
    authority, signer = _authority(days) if ca is None else _adopted(*ca)
    folder.mkdir(mode=0o700, parents=True)
    try:
        if ca is None:
            pkcs8 = serialization.PrivateFormat.PKCS8
            write_whole(folder / "ca.key", signer.private_bytes(_PEM, pkcs8, _OPEN), private=True)
        write_whole(folder / "ca.pem", authority.public_bytes(_PEM))
        _certify(folder, server, authority, signer, days)
        # The holder of this secret may take the runs of the SuperLink, and with them the part of the coordinator.
        write_whole(folder / "superexec.secret", secrets.token_hex(32).encode(), private=True)
        connection = f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n[superlink.{CONNECTION}]\n"
        connection += f'address = "127.0.0.1:{local}"\n'
        connection += f"root-certificates = {json.dumps(str((folder / 'ca.pem').absolute()))}\n"
        write_whole(folder / "home" / "config.toml", connection.encode(), private=True)
        _write_scripts(folder, server, port, local)
        write_whole(folder / "nodes.json", b"{}\n")
    # Half a federation could not be completed by a second call, which refuses an existing folder.
    except BaseException:
        shutil.rmtree(folder)
        raise


def approve(folder: Path, roster: Mapping[str, str | None], site_request: NodeRequest) -> Path:
    """Enter the node of a site that is on the roster, under the identity that the roster names.

    Parameters
    ----------
    folder : Path
        Folder of the federation.
    roster : mapping
        Identity of each site by its name, from the study file.
    site_request : NodeRequest
        A request whose signature was checked when it was read.

    Returns
    -------
    Path
        The node's public key, for `flwr supernode register`.
    """
    known = nodes(folder)
    site_request.check_roster(roster)
    out = folder / "nodes" / f"{site_request.site}.pub"
    if out.exists():
        raise BadInput(f"{out} exists already: a site has one node; unregister it and move the file away")
    try:
        key = serialization.load_pem_public_key(site_request.request)
    except ValueError:
        raise BadInput(f"the request of {site_request.site!r} holds no public key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, type(_CURVE)):
        raise Refused(f"the request of {site_request.site!r} holds a key of another kind than zerosum flower request")
    # Written anew, so that equal keys are equal texts: the coordinator compares them with Flower's.
    text = key.public_bytes(_PEM, _SPKI).decode()
    if text in known.values():
        raise Refused(f"another site has the key in the request of {site_request.site!r}")
    write_whole(out, key.public_bytes(_OPENSSH, serialization.PublicFormat.OpenSSH) + b"\n")
    path = folder / "nodes.json"
    path.unlink()
    write_whole(path, json.dumps(known | {site_request.site: text}, indent=2).encode() + b"\n")
    return out


def nodes(folder: Path) -> dict[str, str]:
    """Public key (PEM) of each approved node, by the name of its site."""
    try:
        record = json.loads((folder / "nodes.json").read_bytes())
        return {str(name): str(key) for name, key in record.items()}
    except (OSError, ValueError, AttributeError):
        raise BadInput(f"{folder} is no federation that zerosum flower provision made") from None


def _authority(days: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A new authority: its certificate and its key."""
    key = ec.generate_private_key(_CURVE)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Zerosum Flower federation")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = _builder(name, name, key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(usage, critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return made.sign(key, hashes.SHA384()), key


def _adopted(certificate: Path, key: Path) -> tuple[x509.Certificate, _Signer]:
    """An authority that exists already. The key is used once and not stored."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise BadInput(f"the authority cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError):
        raise BadInput(
            "the authority must be a certificate and its key, both PEM, the key without a password"
        ) from None
    if private.public_key().public_bytes(_PEM, _SPKI) != loaded.public_key().public_bytes(_PEM, _SPKI):
        raise BadInput("the authority's key is not that of its certificate")
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise BadInput("the authority's key must be an RSA or elliptic-curve key")
    return loaded, private


def _certify(folder: Path, server: str, authority: x509.Certificate, signer: _Signer, days: int) -> None:
    """Make the SuperLink's key and its certificate.

    Parameters
    ----------
    folder : Path
        Folder of the federation.
    server : str
        Host name or address of the SuperLink. The certificate is also valid for this machine itself, where Flower's
        processes of a run connect to the SuperLink.
    authority, signer :
        Certificate and key of the authority.
    days : int
        Validity in days.
    """
    key = ec.generate_private_key(_CURVE)
    names: list[x509.GeneralName] = []
    for each in dict.fromkeys((server, "localhost", "127.0.0.1")):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(each)))
        except ValueError:
            names.append(x509.DNSName(each))
    made = _builder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server)]), authority.subject, key.public_key(), days
    )
    made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    issuer = authority.public_key()
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer)  # type: ignore[arg-type]  # it has signed
    made = made.add_extension(identifier, critical=False)
    pkcs8 = serialization.PrivateFormat.PKCS8
    write_whole(folder / "server.key", key.private_bytes(_PEM, pkcs8, _OPEN), private=True)
    write_whole(folder / "server.pem", made.sign(signer, hashes.SHA384()).public_bytes(_PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    """A certificate that is valid from a day ago, for clocks that are behind."""
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=days))


def _write_scripts(folder: Path, server: str, port: int, local: int) -> None:
    """Write the two scripts that start Flower's processes of the hub, with all that they must not do switched off, and
    the part of nginx's configuration that connects the sites. Arguments as in `found`.
    """
    home = folder.absolute()
    secret = ["--superexec-auth-secret-file", home / "superexec.secret"]
    tls = ["--ssl-certfile", home / "server.pem", "--ssl-keyfile", home / "server.key"]
    # On loopback: the SuperLink has the interface of nodes, that of runs and that of administrators on one port, and
    # starts a run for any client that connects.
    link = ["flower-superlink", "--host", "127.0.0.1", "--port", local]
    link += [*tls, "--ssl-ca-certfile", home / "ca.pem", "--enable-supernode-auth", "--isolation", "process"]
    link += ["--disable-runtime-dependency-installation", "--database", home / "superlink.sqlite", *secret]
    runs = ["flower-superexec", "--runtime-api-address", f"127.0.0.1:{local}"]
    runs += ["--root-certificates", str(home / "ca.pem"), *map(str, secret)]
    settings = QUIET | {"FLWR_HOME": str(home / "home")}
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    for name, words in (("superlink.sh", link), ("superexec.sh", runs)):
        path = folder / name
        command = shlex.join(map(str, words))
        write_whole(path, f"#!/bin/sh\n# Made by zerosum flower provision.\n{lines}exec {command}\n".encode())
        path.chmod(0o700)
    values = {"SERVER": server, "PORT": str(port), "FOLDER": str(home), "LOCAL": str(local)}
    text = _NGINX
    for word, value in values.items():
        text = text.replace(word, value)
    write_whole(folder / "nginx.conf", text.encode())
