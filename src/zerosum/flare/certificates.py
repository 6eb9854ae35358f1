"""TLS certificates for NVIDIA FLARE whose private keys stay where they were made.

    at a site       `request`: a key and a certificate request, by FLARE's own tool; signed with the site's identity
    at the server   `found`: a certificate authority, new or one's own, and the kits of the server and the administrator
                    `approve`: requests of the sites that are on the roster, under the identities it names
    at a site       `install`: the kit, of the key here and the certificate from there, hardened

FLARE's key carries bytes and nothing else. What makes a request a site's is the identity that the roster names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from zerosum.errors import BadInput, Refused
from zerosum.flare.jobs import harden, keep_in
from zerosum.flare.provision import PROJECT, check_address, check_names
from zerosum.report.record import write_whole
from zerosum.secagg.keys import Identity
from zerosum.study.signed_request import SignedRequest


@dataclass(frozen=True)
class Request(SignedRequest):
    """FLARE's request for a site's certificate (a zip archive), signed with the site's identity."""

    purpose: ClassVar[bytes] = b"zerosum certificate request 1\0"
    what: ClassVar[str] = "site's request for a certificate"


def request(folder: Path, name: str, identity: Identity, project: str = PROJECT) -> Path:
    """Make a TLS key and a certificate request, and the file to send, which has no private key in it.

    Parameters
    ----------
    folder : Path
        Folder of the site; key and request are written to `folder`/tls.
    name : str
        Name of the site on the roster.
    identity : Identity
        Signs the request: the roster names this key, so the coordinator can tell whose request it is.
    project : str
        Name of the FLARE project.

    Returns
    -------
    Path
        The file to send to the coordinator.
    """
    check_names([name, project])
    # A second key would make the certificate of the first request useless, so nothing is overwritten.
    tls, out = folder / "tls", folder / f"{name}.request.json"
    if tls.exists() or out.exists():
        raise BadInput(f"{tls} or {out} exists already: send what is there, or move both away for a new key")
    _ask("cert", "request", "-p", _participant(folder, project, _client(name)), "--out", tls, home=folder)
    write_whole(out, Request.of(name, identity, (tls / f"{name}.request.zip").read_bytes()).to_json())
    return out


def found(folder: Path, server: str, port: int, admin: str, *, days: int, ca: tuple[Path, Path] | None = None) -> str:
    """Found a project: its authority, and kits of the server and the administrator.

    Parameters
    ----------
    folder : Path
        New folder of the project. It will hold private keys.
    server : str
        Host name of the server, as sites reach it.
    port : int
        The one port that it listens on.
    admin : str
        E-mail address of the user who submits jobs.
    days : int
        Validity of certificates.
    ca : tuple of Path, optional
        Certificate and key of an authority that exists already (PEM); by default a new authority is made.

    Returns
    -------
    str
        Fingerprint of the authority, which every site must receive through another channel.
    """
    check_names([server])
    check_address(admin)
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another place for the project")
    # FLARE takes the common name of the authority's certificate as the name of the project; they must agree.
    project = PROJECT if ca is None else _common_name(ca[0])
    folder.mkdir(mode=0o700, parents=True)
    try:
        _found(folder, project, server, port, admin, days, ca)
    # Half a project could not be completed by a second call, which refuses an existing folder.
    except BaseException:
        shutil.rmtree(folder)
        raise
    return fingerprint(folder)


def _found(
    folder: Path, project: str, server: str, port: int, admin: str, days: int, ca: tuple[Path, Path] | None
) -> None:
    """Write the project into its new folder. Arguments as in `found`, and the name of the project.

    The kits of the server and of the administrator take the same way as those of sites: key and request, approval,
    package. The difference is that their keys are made here.
    """
    profile = {
        "name": project,
        "scheme": "grpc",
        "connection_security": "mtls",
        "server": {"host": server, "fed_learn_port": port, "admin_port": port},
    }
    (folder / "project.yml").write_text(json.dumps(profile, indent=2) + "\n")  # JSON is YAML
    if ca is None:
        words = ["cert", "init", "--profile", folder / "project.yml", "-o", folder / "ca", "--valid-days", str(days)]
        _ask(*words, home=folder)
    else:
        _adopt(folder / "ca", *ca, project)
    ports = {"fed_learn_port": port, "admin_port": port}
    for name, who in (
        (server, {"name": server, "type": "server", "org": "coordinator", **ports}),
        (admin, {"name": admin, "type": "admin", "org": "coordinator", "role": "lead"}),
    ):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            own = Path(made) / "tls"
            _ask("cert", "request", "-p", _participant(Path(made), project, who), "--out", own, home=folder)
            signed = _approved(folder, own / f"{name}.request.zip", Path(made) / f"{name}.signed.zip", days)
            _package(signed, own, fingerprint(folder), folder / "kits" / name, home=folder)
    harden(folder / "kits" / server)
    keep_in(folder / "kits" / server, folder / "server")


def approve(folder: Path, roster: Mapping[str, str | None], site_request: Request, *, days: int) -> Path:
    """Sign a request of a site that is on the roster, under the identity that the roster names.

    Parameters
    ----------
    folder : Path
        Folder of the project.
    roster : mapping
        Identity of each site by its name, from the study file.
    site_request : Request
        A request whose signature was checked when it was read.
    days : int
        Validity of the certificate.

    Returns
    -------
    Path
        The package to send back.
    """
    fingerprint(folder)
    site_request.check_roster(roster)
    out = folder / "signed" / f"{site_request.site}.signed.zip"
    if out.exists():
        raise BadInput(f"{out} exists already: a site has one certificate; move it away to give another")
    out.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = Path(made) / f"{site_request.site}.request.zip"
        path.write_bytes(site_request.request)
        signed = _approved(folder, path, Path(made) / out.name, days)
        if _certified(signed) != (site_request.site, "client"):  # what FLARE's request says is the site's own word
            raise Refused(f"the request of {site_request.site!r} asks for a certificate that is no site's of that name")
        signed.replace(out)
    return out


def install(folder: Path, signed: Path, expected: str) -> Path:
    """Make the kit of a site, in `folder`/kit: the key that was made here, the received certificate, and the permission
    to load classes of Zerosum only.

    Parameters
    ----------
    folder : Path
        Folder of the site, with the key of `request` in `tls`.
    signed : Path
        Package that the coordinator sent back.
    expected : str
        Fingerprint of the authority, received over another channel. FLARE's tool refuses a package of another
        authority.
    """
    kit = folder / "kit"
    if kit.exists():
        raise BadInput(f"{kit} exists already: stop its client and move it away first")
    if not signed.is_file():
        raise BadInput(f"there is no file {signed}")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        fresh = Path(made) / "kit"
        _package(signed, folder / "tls", expected, fresh, home=folder)
        harden(fresh)
        fresh.replace(kit)
    return kit


def fingerprint(folder: Path) -> str:
    """Fingerprint of the authority in a project's folder, as FLARE's tool compares it."""
    try:
        return str(json.loads((folder / "ca" / "ca.json").read_text())["rootCA_fingerprint"])
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{folder} is no project that zerosum provision made") from None


def expires(kit: Path) -> datetime:
    """Time at which the first certificate of a kit expires: its own, or that of its authority.

    Parameters
    ----------
    kit : Path
        A FLARE kit, with its certificates in `startup`.
    """
    dates = []
    for path in (kit / "startup").glob("*"):
        if path.suffix in (".crt", ".pem"):
            try:
                dates.append(x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc)
            except (OSError, ValueError):
                raise BadInput(f"{path} is no certificate") from None
    if not dates:
        raise BadInput(f"{kit} is no FLARE kit: there is no certificate in it")
    return min(dates).astimezone(UTC)


def _client(name: str) -> dict[str, object]:
    """A site as a participant of a FLARE project. FLARE takes no hyphens and dots in the name of an organisation."""
    return {"name": name, "type": "client", "org": name.replace("-", "_").replace(".", "_")}


def _participant(folder: Path, project: str, who: Mapping[str, object]) -> Path:
    """Write the file of one participant, which FLARE's tool reads; JSON is YAML."""
    path = folder / "participant.yml"
    path.write_text(json.dumps({"name": project, "participants": [dict(who)]}, indent=2) + "\n")
    return path


def _approved(folder: Path, request: Path, signed: Path, days: int) -> Path:
    """Sign a request with the authority of the project, by FLARE's tool.

    Parameters
    ----------
    folder : Path
        Folder of the project, with the authority in `ca`.
    request, signed : Path
        Request to read, and package to write.
    days : int
        Validity in days.
    """
    words = ["cert", "approve", request, "-c", folder / "ca", "--profile", folder / "project.yml", "--out", signed]
    _ask(*words, "--valid-days", str(days), home=folder)
    return signed


def _package(signed: Path, own: Path, expected: str, kit: Path, *, home: Path) -> None:
    """Make a kit of a signed package and the key beside its request, by FLARE's tool.

    Parameters
    ----------
    signed : Path
        The signed package.
    own : Path
        Folder with the key.
    expected : str
        Fingerprint that the authority must have.
    kit : Path
        Folder of the kit to create.
    home : Path
        Folder for temporary files, on the file system of the kit.
    """
    with tempfile.TemporaryDirectory(dir=home) as made:
        words = ["package", signed, "--request-dir", own, "--fingerprint", expected, "-w", Path(made)]
        _ask(*words, home=home)
        # FLARE writes to PROJECT/prod_00/NAME, where NAME is in the certificate; exactly one kit is expected.
        (startup,) = Path(made).glob("*/prod_00/*/startup")
        kit.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(startup.parent, kit)


def _certified(signed: Path) -> tuple[str, str]:
    """The name that a signed package was made out to, and as what: a client, a server, an administrator."""
    with zipfile.ZipFile(signed) as package:
        (name,) = [each for each in package.namelist() if each.endswith(".crt")]
        kind = json.loads(package.read("signed.json"))["cert_type"]
        return _subject(x509.load_pem_x509_certificate(package.read(name))), str(kind)


def _adopt(folder: Path, certificate: Path, key: Path, project: str) -> None:
    """Write an existing authority in the form in which FLARE's tools look for one.

    Parameters
    ----------
    folder : Path
        New folder of the authority.
    certificate, key : Path
        PEM files; the key without a password, since FLARE's tool cannot ask for one.
    project : str
        Name of the project.
    """
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    except OSError as error:
        raise BadInput(f"the authority cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError):
        raise BadInput(
            "the authority must be a certificate and its key, both PEM, the key without a password"
        ) from None
    # The public half of both, byte for byte: a key of another certificate would sign certificates that no site accepts.
    spki = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*spki) != loaded.public_key().public_bytes(*spki):
        raise BadInput("the authority's key is not that of its certificate")
    folder.mkdir(mode=0o700)
    (folder / "rootCA.pem").write_bytes(loaded.public_bytes(serialization.Encoding.PEM))
    # Created with its mode, so that no other user can open it for a moment.
    with os.fdopen(os.open(folder / "rootCA.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    colons = loaded.fingerprint(hashes.SHA256()).hex(":").upper()
    record = {"project": project, "provision_version": "00", "rootCA_fingerprint": f"SHA256:{colons}"}
    (folder / "ca.json").write_text(json.dumps(record, indent=2) + "\n")


def _common_name(certificate: Path) -> str:
    """The name of an authority, which FLARE takes as the name of the project."""
    try:
        name = _subject(x509.load_pem_x509_certificate(certificate.read_bytes()))
    except (OSError, ValueError):
        raise BadInput(f"{certificate} is no certificate in PEM") from None
    check_names([name])
    return name


def _subject(certificate: x509.Certificate) -> str:
    """Common name of a certificate; empty if it has none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _ask(*words: object, home: Path) -> None:
    """Run one of FLARE's own tools.

    Parameters
    ----------
    words : object
        Words of the command line after `nvflare`.
    home : Path
        Home folder of the tool: what FLARE would write into the user's home goes beside its other files.

    Raises
    ------
    BadInput
        If FLARE is not installed or its tool fails; the end of its output is in `detail`.
    """
    tool = Path(sys.executable).parent / "nvflare"
    if not tool.exists():
        raise BadInput("NVIDIA FLARE is not installed here: pip install 'zerosum[nvflare]'")
    command = [str(tool), *map(str, words)]
    environment = {**os.environ, "HOME": str(home.absolute())}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, input="")  # noqa: S603
    if done.returncode != 0:
        raise BadInput(
            f"FLARE's tool refused: nvflare {words[0]} {words[1]}", detail=(done.stderr or done.stdout)[-2000:]
        )
