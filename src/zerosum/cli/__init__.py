"""The command line. Results go to stdout, progress to stderr; `--json` makes both the result and errors JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import app
from zerosum.errors import ZerosumError

#: Modules that register a command or group of commands, by the name of the command.
MODULES = {
    "account": ("account",),
    "audit": ("audit",),
    "check": ("study",),
    "compare": ("forecast",),
    "coordinator": ("coordinator", "report"),
    "demo": ("study",),
    "describe": ("describe",),
    "reproduce": ("reproduce",),
    "flare": ("flare",),
    "ledger": ("ledger",),
    "plan": ("study",),
    "provision": ("flare",),
    "results": ("results",),
    "run": ("study",),
    "site": ("key", "report", "site"),
    "verify": ("report",),
    "version": ("study",),
    "watch": ("watch",),
}

# typer's own base of all usage errors, wherever the installed version keeps it
_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def load(command: str = "") -> None:
    """Load the modules of a command, which registers it with `app`.

    Parameters
    ----------
    command : str
        First word of the command line. If it is not a command (`--help`, a misspelling, empty), every module is
        loaded, because the output lists all commands.
    """
    for module in MODULES.get(command) or sorted({name for names in MODULES.values() for name in names}):
        import_module(f"zerosum.cli.{module}")


def main() -> None:
    """Entry point. A foreseeable failure is printed as one sentence with an exit code, without a traceback."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        load(*arguments[:1])
        code = app(args=arguments, prog_name="zerosum", standalone_mode=False)
        if code == 130:  # typer's exit code after Ctrl-C
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
        notes = getattr(stop.__cause__, "__notes__", [])
        return _fail(as_json, "Interrupted", "; ".join(["interrupted", *notes]), 130)
    except BrokenPipeError:
        return 0


def _fail(as_json: bool, kind: str, message: str, code: int, detail: str = "") -> int:
    if as_json:
        print(json.dumps({"error": {"type": kind, "message": message}}))
    else:
        terminal.show_error(message, detail)
    return code
