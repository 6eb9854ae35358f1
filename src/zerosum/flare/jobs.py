"""Files that FLARE reads: a job for its administrator to submit, and kits that run nothing else.

A job names classes and gives them arguments. FLARE would let it name any class that is installed at a site, bring code
of its own, and send logs to the server. `harden` takes these rights away in the kit, at the site, where no job can give
them back.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.names import check_name
from zerosum.kernel.plan import Plan

ALLOWED = "zerosum.flare."  # classes that a job may name
_RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")  # what one word stood for
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # ids of jobs
_STREAMERS = {"site_log_streamer", "log_receiver"}  # they send a site's logs to the server


def refuse_tree(plan: Plan) -> None:
    """Refuse a plan with a tree: FLARE's cells connect the server with each site and no site with another."""
    if plan.parents:
        raise BadParameter(
            "FLARE carries messages between the server and each site only: leave [tree] out of the study"
        )


def write_job(folder: Path, study: str, sites: int) -> None:
    """Write a job for the study of a state folder. It holds no code and no data.

    Parameters
    ----------
    folder : Path
        The new folder of the job.
    study : str
        Name of the state folder below $ZEROSUM_COORDINATOR on the server.
    sites : int
        Number of sites that must be connected before FLARE starts the job.
    """
    check_name("a study", study)
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another place for the job")
    # min_clients: FLARE starts the job only when all sites are connected. "@ALL" deploys the app to server and sites.
    meta = {"name": study, "min_clients": sites, "resource_spec": {}, "deploy_map": {"app": ["@ALL"]}}
    server = {"id": "zerosum", "path": f"{ALLOWED}controller.Coordinator", "args": {"study": study}}
    relay = {"tasks": ["zerosum"], "executor": {"path": f"{ALLOWED}relay.Relay", "args": {}}}
    config = folder / "app" / "config"
    try:
        config.mkdir(parents=True)
        _write(folder / "meta.json", meta)
        _write(config / "config_fed_server.json", {"format_version": 2, "workflows": [server]})
        _write(config / "config_fed_client.json", {"format_version": 2, "executors": [relay]})
    except OSError as error:
        raise BadInput(f"the job cannot be written to {folder}: {error.strerror}") from error


def harden(kit: Path) -> list[str]:
    """Let a FLARE kit run the classes of this package and nothing else: no code from jobs, no shell, no logs sent away.

    Parameters
    ----------
    kit : Path
        Kit of a site or of the server.

    Returns
    -------
    list of str
        Files that were changed; empty for a kit that is hardened already.
    """
    local = kit / "local"
    resources, rights = _read(local, "resources.json"), _read(local, "authorization.json")
    before = json.dumps([resources, rights])
    # The list limits the classes that a job's configuration may name: a job cannot run other classes that are
    # installed at the site.
    resources |= {"class_allow_list": [ALLOWED], "class_list_enforcement_mode": "enforce"}
    # Logs can hold paths and messages of a site; they stay there.
    resources["allow_log_streaming"] = False
    components = [each for each in resources.get("components", []) if each.get("id") not in _STREAMERS]
    for each in components:
        if each.get("id") == "process_launcher" and "client" in str(each.get("path", "")).lower():
            each["path"] = f"{ALLOWED}launcher.Launcher"
    resources["components"] = components
    permissions = rights.get("permissions", {})
    for name, role in permissions.items():
        # FLARE accepts one word for all rights of a role. It is spelled out, so that the two rights below can be taken
        # away: byoc is code that a job brings, shell_commands are commands of the administrator's console.
        named = dict.fromkeys(_RIGHTS, role) if isinstance(role, str) else role
        permissions[name] = named | {"byoc": "none", "shell_commands": "none"}
    # FLARE reads resources.json in preference to resources.json.default: a kit is hardened only if the former exists.
    if json.dumps([resources, rights]) == before and (local / "resources.json").exists():
        return []
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", rights)
    return [str(local / "resources.json"), str(local / "authorization.json")]


def tidy(kit: Path, days: float) -> list[Path]:
    """Remove the folders of finished jobs from a kit, where FLARE leaves them. Returns what was removed.

    Parameters
    ----------
    kit : Path
        Kit of a site.
    days : float
        A folder stays until nothing in it has changed for this time: a job that runs writes its log.
    """
    if not (kit / "startup").is_dir():
        raise BadInput(f"{kit} is no kit of FLARE: it has no folder 'startup'")
    oldest, removed = time.time() - 86400 * days, []
    for folder in sorted(kit.iterdir()):
        # FLARE names the folder of a job by its random id. A link could lead elsewhere.
        if folder.is_symlink() or not (folder.is_dir() and _JOB.fullmatch(folder.name)):
            continue
        inside = (each.lstat().st_mtime for each in folder.rglob("*"))
        if max(inside, default=folder.lstat().st_mtime) < oldest:
            try:
                shutil.rmtree(folder)
            except OSError as error:
                raise BadInput(f"{folder} cannot be removed: {error.strerror}") from error
            removed.append(folder)
    return removed


def keep_in(kit: Path, folder: Path) -> None:
    """Make a server's kit keep jobs and snapshots in a folder of its own instead of the machine's shared default."""
    resources = _read(kit / "local", "resources.json")
    # FLARE's defaults lie below /tmp, which other users of the machine can reach and a restart may empty.
    storage = resources.get("snapshot_persistor", {}).get("args", {}).get("storage", {})
    if storage:
        storage.setdefault("args", {})["root_dir"] = str(folder.absolute() / "snapshots")
    for each in resources.get("components", []):
        if each.get("id") == "job_manager":
            each.setdefault("args", {})["uri_root"] = str(folder.absolute() / "jobs")
    _write(kit / "local" / "resources.json", resources)


def _read(local: Path, name: str) -> dict[str, Any]:
    """A file of a kit, or the default that FLARE put there.

    Parameters
    ----------
    local : Path
        Folder `local` of the kit.
    name : str
        Name of the file; FLARE's default has the suffix `.default`.
    """
    for path in (local / name, local / f"{name}.default"):
        if path.exists():
            try:
                record = json.loads(path.read_bytes())
            except (OSError, ValueError) as error:
                raise BadInput(f"{path} cannot be read") from error
            if isinstance(record, dict):
                return record
    raise BadInput(f"{local.parent} is no FLARE kit: it has no local/{name}.default")


def _write(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, in lines that an administrator can read."""
    path.write_text(json.dumps(record, indent=2) + "\n")
