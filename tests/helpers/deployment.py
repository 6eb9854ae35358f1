"""Sites as processes of their own: made by `zerosum site init`, served by `zerosum site run`, ended by their ids."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.cli.site import site_init
from zerosum.protocol.stream import alive
from zerosum.site.ledger import Ledger
from zerosum.study import SiteFile
from zerosum.study.site_schema import confirm_schema, draft_schema, schema_text

NAMES = ("north", "east", "south", "west")
RANGES = "lower = [0, 60, 10]\nupper = [100, 200, 60]\n"
COMMAND = [sys.executable, "-c", "from zerosum.cli import main; main()"]

STUDY = """
name = "{name}"
algorithm = "{algorithm}"

[parameters]
columns = ["age", "pressure", "bmi"]
{parameters}

[unit]
kind = "person"

[privacy]
epsilon = 2.0
delta = 1e-5
{privacy}

[coalition]
colluders = 1
dropouts = 1
"""


def zerosum(*arguments: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, **more)


def declare(site: SiteFile) -> None:
    """Draft and confirm the schema of a site's data, as its steward does."""
    schema = draft_schema(site, site.own_policy())
    site.schema_path.write_text(schema_text(schema))
    confirm_schema(site, schema)


class Deployment:
    """Four sites in folders of their own, and whatever was started for them."""

    def __init__(
        self, folder: Path, *, automatic: bool = True, epsilon: float = 10.0, data: str = "synthetic", rows: int = 1
    ) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.identities: dict[str, str] = {}
        rng = np.random.default_rng(1)
        for name in NAMES:
            home = folder / name
            site_init(home, json_=True)  # the command's own function: a process for each would take seconds
            text = (home / "site.toml").read_text()
            text = re.sub(r"automatic = false", f"automatic = {str(automatic).lower()}", text)
            text = re.sub(r'(?m)^data = "private"', f'data = "{data}"', text)
            text = re.sub(r"(?m)^epsilon = 10.0", f"epsilon = {epsilon}", text)
            (home / "site.toml").write_text(text)
            n = 60 * rows
            table = np.column_stack([rng.uniform(20, 90, n), rng.uniform(90, 180, n), rng.uniform(18, 40, n)])
            lines = [",".join(f"{value:.2f}" for value in row) for row in table]
            if rows > 1:  # of each of the sixty people
                text = (home / "site.toml").read_text()
                (home / "site.toml").write_text(text.replace('# unit_column = "patient"', 'unit_column = "person"'))
                lines = [f"{line},p{at // rows}" for at, line in enumerate(lines)]
            heading = "age,pressure,bmi" + (",person" if rows > 1 else "")
            (home / "data.csv").write_text("\n".join([heading, *lines]) + "\n")
            site = self.site(name)
            self.identities[name] = site.keep_identity().public.hex()
            declare(site)

    def site(self, name: str) -> SiteFile:
        return SiteFile.load(self.folder / name / "site.toml")

    def study(
        self,
        algorithm: str = "mean",
        *,
        name: str = "vitals",
        seed: int | None = 7,
        attempts: int = 0,
        parameters: str = "",
        ranges: str = RANGES,
        scheme: str = "secure-sum",
        parents: Mapping[str, str] | None = None,
    ) -> Path:
        """The public part of a study, with everybody's identity."""
        privacy = ("" if seed is None else f"random_state = {seed}\n") + f"attempts = {attempts}"
        text = STUDY.format(name=name, algorithm=algorithm, parameters=ranges + parameters, privacy=privacy)
        text += f'\n[scheme]\nname = "{scheme}"\n'
        if parents:
            text += "\n[tree.parents]\n" + "".join(f'{child} = "{above}"\n' for child, above in parents.items())
        for each in NAMES:
            text += f'\n[[sites]]\nname = "{each}"\nunits = 60\nidentity = "{self.identities[each]}"\n'
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def join(self, parents: Mapping[str, str]) -> None:
        """Name in the file of each inner node the sockets of its children."""
        for parent in set(parents.values()):
            below = [f'{child} = "../{child}/state/socket"' for child, above in parents.items() if above == parent]
            with (self.folder / parent / "site.toml").open("a") as file:
                file.write("\n".join(["\n[children]", *below]) + "\n")

    def start(self, *names: str) -> None:
        for name in names or NAMES:
            log = (self.folder / f"{name}.log").open("ab")
            with log:
                self.running[name] = subprocess.Popen(
                    [*COMMAND, "site", "run", str(self.folder / name / "site.toml")],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
        for name in names or NAMES:
            self.wait(name)

    def wait(self, name: str) -> None:
        end = time.monotonic() + 300
        while not alive(self.site(name).socket, 5.0):
            assert self.running[name].poll() is None, (self.folder / f"{name}.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)
        self.running.clear()

    def sockets(self) -> dict[str, Path]:
        return {name: self.site(name).socket for name in NAMES}

    def spent(self, name: str) -> list[tuple[str, int, int]]:
        """Study, round and attempt of everything in a site's ledger, which is verified first."""
        with Ledger.inspect(self.site(name).own_policy().ledger_path) as ledger:
            ledger.verify()
            entries = [(each.spend.study, each.spend.round, each.spend.attempt) for each in ledger.entries()]
            return entries + [(each.study, each.round, each.attempt) for each in ledger.draws()]

    def log(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.site(name).audit_log.read_text().splitlines()]
