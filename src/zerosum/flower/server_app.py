"""The ServerApp of a coordinator: carries out the study of a state folder on the machine of the SuperLink.

A run of Flower brings the study's name and nothing else; $ZEROSUM_COORDINATOR is the folder in which state folders lie.
Killed, stopped or abandoned with its SuperLink, the study goes on in the next run of the same bundle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from logging import getLogger
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from zerosum.engines.base import Engine
from zerosum.errors import BadInput
from zerosum.flower.bundle import STUDY, refuse_tree
from zerosum.flower.grid import FlowerGrid
from zerosum.kernel.plan import Plan
from zerosum.study.coordinating import Settings, coordinate

_LOG = getLogger("flwr")  # Flower uploads this log to its SuperLink, where `flwr log` shows it


def _main(grid: Grid, context: Context) -> None:
    """Run the study of the state folder, or resume it from the folder's journal."""
    home = os.environ.get("ZEROSUM_COORDINATOR")
    if not home:
        raise BadInput("ZEROSUM_COORDINATOR is not set where the SuperLink's processes were started")
    # The name comes from the configuration of a run. Only its last part is used, so that a run cannot name a folder
    # outside $ZEROSUM_COORDINATOR.
    study = Path(str(context.run_config.get(STUDY, ""))).name
    folder = Path(home) / study
    settings = Settings.load(folder)

    # Called by `coordinate` once the plan is known: the digest of the plan names the study at the sites.
    def connect(plan: Plan) -> AbstractContextManager[Engine]:
        refuse_tree(plan)
        engine: Engine = FlowerGrid(grid, settings.nodes, plan.digest(), settings.seconds)
        return nullcontext(engine)

    def attended(sites: Mapping[str, str]) -> None:
        # One line of JSON, for programs that follow the log.
        _LOG.info(json.dumps({"zerosum": study, "sites": dict(sites)}))

    coordinate(folder, attended, connect=connect)


app = ServerApp()
app.main()(_main)
