"""The Flower app of a study: a project file that names installed modules, without code of its own."""

from __future__ import annotations

import json
from pathlib import Path

from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.names import check_name
from zerosum.kernel.plan import Plan
from zerosum.version import VERSION

STUDY = "study"  # the entry of a run's configuration with the name of the state folder

_PROJECT = """\
# A Flower app without code: it names modules that are installed with Zerosum.
[project]
name = "zerosum-study"
version = "{version}"
description = "carries a study of Zerosum"
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "zerosum"

[tool.flwr.app.components]
serverapp = "zerosum.flower.server_app:app"
clientapp = "zerosum.flower.client_app:app"

[tool.flwr.app.config]
{entry} = {study}
"""


def refuse_tree(plan: Plan) -> None:
    """Refuse a plan with a tree: Flower's Grid connects the coordinator with each site and no site with another."""
    if plan.parents:
        raise BadParameter("Flower carries messages between the coordinator and each site only: leave [tree] out")


def write_app(folder: Path, study: str) -> None:
    """Write a Flower app for the study of a state folder. It holds no code and no data.

    Parameters
    ----------
    folder : Path
        The new folder of the app, for `flwr run`.
    study : str
        Name of the state folder below $ZEROSUM_COORDINATOR on the machine of the SuperLink.
    """
    check_name("a study", study)
    if folder.exists():
        raise BadInput(f"{folder} exists already; choose another place for the app")
    # Flower reads versions of three numbers.
    version = ".".join(VERSION.split(".")[:3])
    # A JSON string of a checked name is a TOML string.
    text = _PROJECT.format(version=version, entry=STUDY, study=json.dumps(study))
    try:
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(text)
    except OSError as error:
        raise BadInput(f"the app cannot be written to {folder}: {error.strerror}") from error
