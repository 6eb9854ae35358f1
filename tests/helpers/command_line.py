"""Runs the command line, in this process or in a new one, and reads its answers. Writes a small study file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from helpers.small_studies import VITALS
from zerosum.cli import _run, terminal
from zerosum.errors import ZerosumError

STUDY = VITALS.replace("epsilon = 1.0", "epsilon = 2.0")


def zerosum(*arguments: str, cwd: Path, width: int = 200, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which saves the time that a new process takes."""
    out, err = io.StringIO(), io.StringIO()
    wide = patch.object(terminal.out, "_width", width), patch.object(terminal.err, "_width", width)
    answers = patch("sys.stdin", io.StringIO(stdin))
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), wide[0], wide[1], answers:
        code = _run(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def zerosum_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, with a state folder inside `cwd`."""
    environment = {**os.environ, "ZEROSUM_STATE": str(cwd / "state"), "COLUMNS": "200"}
    command = [sys.executable, "-c", "from zerosum.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def assert_refused(
    done: subprocess.CompletedProcess[str], *words: str, code: int = 2, error: type[ZerosumError] | None = None
) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    message = as_json(done)["error"]["message"]
    assert error is None or as_json(done)["error"]["type"] == error.__name__
    assert "\n" not in message
    for word in words:
        assert word in message


def write_study(folder: Path, text: str = STUDY, sizes: tuple[int, ...] = (15, 30, 60), site_extra: str = "") -> Path:
    rng = np.random.default_rng(1)
    for s, n in enumerate(sizes):
        rows = np.column_stack([rng.uniform(20, 90, n), rng.uniform(90, 180, n)])
        lines = [f"{a:.1f},{b:.1f}" for a, b in rows]
        (folder / f"{s}.csv").write_text("\n".join(["age,pressure", *lines]) + "\n")
        text += f'\n[[sites]]\nname = "s{s}"\ndata = "{s}.csv"\n{site_extra}'
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"
