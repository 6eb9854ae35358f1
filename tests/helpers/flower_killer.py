"""A ServerApp of Flower that kills the node of one site when frames of some phase are about to go out.

`kill.json` in $ZEROSUM_TEST_NODES has the phase and the process; it is removed with the kill.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from flwr.serverapp import ServerApp

from helpers.coordinator_runs import phase
from zerosum.flower import server_app
from zerosum.flower.grid import FlowerGrid
from zerosum.protocol.codec import Frame, decode_message


class _Killing(FlowerGrid):
    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        order = Path(os.environ["ZEROSUM_TEST_NODES"]) / "kill.json"
        if order.exists():
            told = json.loads(order.read_text())
            if phase(decode_message(next(iter(frames.values())))) == told["at"]:
                order.unlink()
                os.kill(told["pid"], signal.SIGKILL)
        return super().exchange(frames)


# The process runs this study only.
vars(server_app)["FlowerGrid"] = _Killing
app = ServerApp()
app.main()(server_app._main)
