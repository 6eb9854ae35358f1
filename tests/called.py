"""The command line, called in this process: as `test_cli.zerosum`, without the time that a new process takes."""

from __future__ import annotations

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from zerosum.cli import _run, terminal


def zerosum(*arguments: str, cwd: Path, width: int = 200, stdin: str = "") -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    wide = patch.object(terminal.out, "_width", width), patch.object(terminal.err, "_width", width)
    answers = patch("sys.stdin", io.StringIO(stdin))
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), wide[0], wide[1], answers:
        code = _run(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
