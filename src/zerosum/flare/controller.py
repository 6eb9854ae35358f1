"""FLARE's end at the coordinator: carries out, in the server's job process, the study of a state folder there.

A job brings the study's name and nothing else; $ZEROSUM_COORDINATOR is the folder in which state folders lie. Killed
with its job or with the whole server, the study goes on in the next job of the same name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from zerosum.engines.base import Engine
from zerosum.errors import ZerosumError
from zerosum.flare.cells import Cells, Interrupted
from zerosum.flare.jobs import refuse_tree
from zerosum.kernel.plan import Plan
from zerosum.study.coordinating import Settings, coordinate


class Coordinator(Controller):  # type: ignore[misc]  # FLARE ships no types
    """FLARE's workflow for one study. `control_flow` is called once per job and runs the study to its end.

    Parameters
    ----------
    study : str
        Name of the study's state folder below $ZEROSUM_COORDINATOR.
    """

    def __init__(self, study: str = "") -> None:
        super().__init__()
        # The name comes from a job, which an administrator writes. Only its last part is used, so that a job cannot
        # name a folder outside $ZEROSUM_COORDINATOR.
        self._study = Path(study).name

    # The next three methods are abstract in FLARE. They concern tasks, and frames travel by cell, not as tasks.

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to start: the study starts in `control_flow`."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to stop: `control_flow` ends with the study or with the job."""

    def process_result_of_unknown_task(self, *arguments: Any, **more: Any) -> None:
        """No task is issued, so no result of one is used."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the study of the state folder, or resume it from the folder's journal."""
        home = os.environ.get("ZEROSUM_COORDINATOR")
        if not home:
            self.system_panic("ZEROSUM_COORDINATOR is not set where the server was started", fl_ctx)
            return
        folder = Path(home) / self._study
        try:
            settings = Settings.load(folder)

            # Called by `coordinate` once the plan is known: the digest of the plan names the study at the sites.
            def connect(plan: Plan) -> AbstractContextManager[Engine]:
                refuse_tree(plan)
                engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
                # A site's job process listens at the cell <client>.<job>; the name of the client is that of the site.
                targets = {client.name: FQCN.join([client.get_fqcn(), job]) for client in engine.get_clients()}
                return closing(
                    Cells(engine.get_cell(), targets, plan.digest(), abort_signal, settings.seconds, settings.ping)
                )

            coordinate(folder, self._attended, connect=connect, absent=settings.absent)
        # No panic after an interruption: the job is ending anyway, and the study stays resumable.
        except Interrupted as interruption:
            self.logger.warning(str(interruption))
        except ZerosumError as error:
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)

    def _attended(self, sites: Mapping[str, str]) -> None:
        """Log which sites have agreed, and what the others wait for."""
        # One line of JSON, for programs that follow the log.
        self.logger.info(json.dumps({"zerosum": self._study, "sites": dict(sites)}))
