"""FLARE's workflow of a study that kills the relay of one site when frames of some phase are about to go out.

`kill.json` in the folder of the studies has the phase and the process of the site's FLARE client; it is removed with
the kill.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from helpers.coordinator_runs import phase
from helpers.flare_federation import job_process_of
from zerosum.flare import controller
from zerosum.flare.cells import Cells
from zerosum.protocol.codec import Frame, decode_message


class _Killing(Cells):
    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        order = Path(os.environ["ZEROSUM_COORDINATOR"]) / "kill.json"
        if order.exists():
            told = json.loads(order.read_text())
            if phase(decode_message(next(iter(frames.values())))) == told["at"]:
                order.unlink()
                os.kill(job_process_of(told["pid"]), signal.SIGKILL)
        return super().exchange(frames)


# The process runs this study only.
vars(controller)["Cells"] = _Killing


class Coordinator(controller.Coordinator):
    """The workflow that a job of a test names."""
