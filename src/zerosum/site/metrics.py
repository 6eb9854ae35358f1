"""Figures about the process of a serving site for monitors, in a file of its state folder.

They are not sent over the socket, which a coordinator can read: the number of requests of other studies must not reach
it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from zerosum.errors import BadInput, ZerosumError
from zerosum.site import open_metrics
from zerosum.site.decisions import Consents, write_file
from zerosum.site.service import Service
from zerosum.version import VERSION

NAME = "metrics.json"


class Metrics:
    """Writes the figures every `every` seconds within a `with` block, and once more at its end.

    Parameters
    ----------
    folder : Path
        The state folder.
    service, consents
        The running service and its store of decisions, which are only read.
    every : float
        Seconds between two writes.
    check : callable
        Finds the faults of the site (`zerosum.site.health`).
    text_file : Path, optional
        A file for monitors, in the OpenMetrics format (`zerosum.site.open_metrics`), which all users may read.
    """

    def __init__(
        self,
        folder: Path,
        service: Service,
        consents: Consents,
        *,
        every: float,
        check: Callable[[], list[str]] = list,
        text_file: Path | None = None,
    ) -> None:
        self._folder, self._service, self._consents, self._every = folder, service, consents, every
        self._check, self._text_file = check, text_file
        self._began, self._over = time.time(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="zerosum-metrics", daemon=True)

    def __enter__(self) -> Metrics:
        self._write(serving=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread is ended before the last write, so that no older figures overwrite it.
        self._over.set()
        self._thread.join()
        self._write(serving=False)

    def _run(self) -> None:
        """Write the figures at intervals until the end of the scope."""
        # Waiting on the event, and not `sleep`, ends the thread at once when the site stops.
        while not self._over.wait(self._every):
            self._write(serving=True)

    def _write(self, *, serving: bool) -> None:
        """Replace the file by the present figures."""
        with suppress(OSError, ZerosumError):  # a full disk stops releases, which must be recorded; figures may be late
            record = {
                "site": self._service.name,
                "version": VERSION,
                "serving": serving,
                "pid": os.getpid(),
                "started": self._began,
                "written": time.time(),
                "studies": self._service.studies,
                "open": self._service.open_studies(),
                "queue": self._service.queue(),
                "waiting": len(self._consents.waiting()),
                "faults": self._check() if serving else [],
                "counts": dict(sorted(self._service.counts.copy().items())),
                **process(),
            }
            write_file(self._folder / NAME, json.dumps(record, indent=2).encode() + b"\n")
            if self._text_file is not None:
                self._write_text(record)

    def _write_text(self, record: dict[str, Any]) -> None:
        """Replace the file for monitors."""
        assert self._text_file is not None  # noqa: S101
        policy = self._service.policy
        budget = {"spent": self._service.ledger.epsilon(policy.delta), "cap": policy.epsilon}
        free = {"disk_free_bytes": shutil.disk_usage(self._folder).free}
        # Beside the file, and with another ending than collectors look for.
        fresh = self._text_file.with_name(f".{self._text_file.name}.new")
        fresh.write_text(open_metrics.text(record | budget | free), encoding="utf-8")
        # Before the file has its name: a collector runs as another user, and would find a file that it cannot read.
        fresh.chmod(0o644)
        fresh.replace(self._text_file)


def process() -> dict[str, int]:
    """Memory, open files and threads of this process; figures that the system does not provide are left out."""
    found = {"threads": threading.active_count()}
    with suppress(OSError, ValueError, IndexError):
        found["memory_bytes"] = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found["open_files"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a folder of links that come and go
    return found


def read(folder: Path) -> dict[str, Any]:
    """The last figures, their age in seconds, and the free space on the disk; empty if there are none."""
    try:
        record = json.loads((folder / NAME).read_bytes())
        # Not below 0: the clock may have been set back since.
        age = max(time.time() - record["written"], 0.0)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{folder / NAME} cannot be read") from error
    return dict(record) | {"age_seconds": age, "disk_free_bytes": shutil.disk_usage(folder).free}
