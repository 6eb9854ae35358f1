"""The command line. Results go to stdout, progress to stderr; `--json` makes both the result and errors JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from zerosum.cli import (
    accounts,
    advising,
    audits,
    coordinators,
    describing,
    figures,
    flares,
    keys,
    ledgers,
    reports,
    results,
    sites,
    studies,
    terminal,
    watching,
)
from zerosum.cli.app import app
from zerosum.errors import ZerosumError

# importing them registers their commands
__all__ = [
    "accounts",
    "advising",
    "audits",
    "coordinators",
    "describing",
    "figures",
    "flares",
    "keys",
    "ledgers",
    "main",
    "reports",
    "results",
    "sites",
    "studies",
    "watching",
]

# typer's own base of all usage errors, wherever the installed version keeps it
_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Entry point: every foreseeable failure is one sentence and an exit code, never a traceback."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        code = app(args=arguments, prog_name="zerosum", standalone_mode=False)
        if code == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        return int(code or 0)
    except ZerosumError as error:
        return _fail(as_json, type(error).__name__, str(error), error.exit_code, error.detail)
    except _UsageProblem as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help page
            print(message)
            return 2
        return _fail(as_json, "UsageError", " ".join(message.split()), 2)
    except (KeyboardInterrupt, typer.Abort) as stop:
        said = getattr(stop.__cause__, "__notes__", [])
        return _fail(as_json, "Interrupted", "; ".join(["interrupted", *said]), 130)
    except BrokenPipeError:
        return 0


def _fail(as_json: bool, kind: str, message: str, code: int, detail: str = "") -> int:
    if as_json:
        print(json.dumps({"error": {"type": kind, "message": message}}))
    else:
        terminal.show_error(message, detail)
    return code
