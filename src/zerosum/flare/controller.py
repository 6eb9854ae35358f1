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
from zerosum.kernel.plan import Plan
from zerosum.study.coordinating import Settings, coordinate


class Coordinator(Controller):  # type: ignore[misc]  # FLARE ships no types
    def __init__(self, study: str = "") -> None:
        super().__init__()
        self._study = Path(study).name

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(self, *arguments: Any, **more: Any) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        home = os.environ.get("ZEROSUM_COORDINATOR")
        if not home:
            self.system_panic("ZEROSUM_COORDINATOR is not set where the server was started", fl_ctx)
            return
        folder = Path(home) / self._study
        try:
            settings = Settings.load(folder)

            def connect(plan: Plan) -> AbstractContextManager[Engine]:
                engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
                targets = {client.name: FQCN.join([client.get_fqcn(), job]) for client in engine.get_clients()}
                return closing(
                    Cells(engine.get_cell(), targets, plan.digest(), abort_signal, settings.seconds, settings.ping)
                )

            coordinate(folder, self._attended, connect=connect)
        except Interrupted as interruption:
            self.logger.warning(str(interruption))
        except ZerosumError as error:
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)

    def _attended(self, sites: Mapping[str, str]) -> None:
        self.logger.info(json.dumps({"zerosum": self._study, "sites": dict(sites)}))
