"""A FLARE project from a study's roster: kits for the server, for every site and for the administrator, hardened.

The keys in these kits are TLS keys that FLARE makes on this machine. The signing keys of sites (`identity.key`) are
made at each site and are not part of a kit. These kits are for rehearsals: in a real study TLS keys are made at the
sites too, and `certificates` signs their requests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerosum.errors import BadInput, BadParameter
from zerosum.flare.jobs import harden

PROJECT = "zerosum"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LIGHTER = "nvflare.lighter.impl."


def provision(folder: Path, sites: Sequence[str], server: str, port: int, admin: str) -> Path:
    """Have FLARE make the kits of a new project, and harden them.

    Parameters
    ----------
    folder : Path
        New folder of the project.
    sites : sequence of str
        Names of the sites.
    server : str
        Host name of the server, as sites reach it.
    port : int
        The one port that it listens on.
    admin : str
        E-mail address of the administrator.

    Returns
    -------
    Path
        Folder with one kit for each participant.
    """
    check_names([*sites, server])
    check_address(admin)
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another place for the kits")
    tool = Path(sys.executable).parent / "nvflare"
    if not tool.exists():
        raise BadInput("NVIDIA FLARE is not installed here: pip install 'zerosum[nvflare]'")
    # Only this user may read the folder: it will hold private keys.
    folder.mkdir(mode=0o700, parents=True)
    (folder / "project.yml").write_text(
        json.dumps(project(sites, server, port, admin), indent=2) + "\n"
    )  # JSON is YAML
    command: list[str | Path] = [tool, "provision", "-p", folder / "project.yml", "-w", folder / "work"]
    # The folder is checked as well as the exit code: kits that are absent cannot be hardened.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    kits = folder / "work" / PROJECT / "prod_00"
    if done.returncode != 0 or not kits.is_dir():
        raise BadInput("FLARE did not make the kits", detail=(done.stderr or done.stdout)[-2000:])
    # The administrator's kit runs no jobs, so there is nothing to restrict.
    for name in (server, *sites):
        harden(kits / name)
    return kits


def check_names(names: Sequence[str]) -> None:
    """Refuse names that FLARE cannot use as common names of certificates and as folders of kits."""
    if not all(_NAME.fullmatch(name) for name in names):
        raise BadParameter("FLARE takes letters, digits, dots, hyphens and underscores in the names of sites")


def check_address(admin: str) -> None:
    """Refuse an administrator's name that is not an e-mail address, which FLARE requires."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+", admin):
        raise BadParameter("FLARE's administrator is named by an e-mail address")


def project(sites: Sequence[str], server: str, port: int, admin: str) -> dict[str, Any]:
    """A project file in the form that FLARE reads. Arguments as in `provision`.

    The builders are those that FLARE needs for kits: folders, configuration, certificates and signatures. There is no
    overseer and no other service.
    """
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "sites that compute together with Zerosum",
        "participants": [
            {"name": server, "type": "server", "org": "coordinator", "fed_learn_port": port, "admin_port": port},
            *({"name": name, "type": "client", "org": name.replace("-", "_").replace(".", "_")} for name in sites),
            {"name": admin, "type": "admin", "org": "coordinator", "role": "project_admin"},
        ],
        "builders": [
            {"path": f"{_LIGHTER}workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{_LIGHTER}static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "grpc"}},
            {"path": f"{_LIGHTER}cert.CertBuilder"},
            {"path": f"{_LIGHTER}signature.SignatureBuilder"},
        ],
    }
