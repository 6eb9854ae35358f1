"""The command line. Results go to stdout, progress to stderr; `--json` makes both the result and errors JSON.

How a command runs:

1. `main` takes the first word of the command line and imports only the modules of that command (`load`). Importing a
module registers its commands with `zerosum.cli.app.app`.
2. The command imports the packages it needs inside its function. With both, `zerosum --help` and the completion of a
shell load no numerical library, and `zerosum account` loads the kernel only; tests/test_startup.py states what each
start may import.
3. The command does its work and prints through `zerosum.cli.terminal`.
4. An error of the package (`ZerosumError`) has a message that may be shown to other parties, a `detail` that may not,
and an exit code. `_run` is the only place that turns errors into output.

Exit codes: 0 done, 2 wrong input or refused, 3 abandoned because sites were lost, 4 a check found a fault, 130
interrupted.
"""

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
    # The groups `coordinator` and `site` consist of several modules, one for each subject.
    "check": ("study",),
    "compare": ("forecast",),
    "coordinator": ("coordinator", "report"),
    "demo": ("study",),
    "describe": ("describe",),
    "dossier": ("dossier",),
    "reproduce": ("reproduce",),
    "flare": ("flare",),
    "flower": ("flower",),
    "ledger": ("ledger",),
    "plan": ("study",),
    "provision": ("flare",),
    "results": ("results",),
    "run": ("study",),
    "site": ("convert", "key", "operate", "report", "site"),
    "synth": ("synth",),
    "verify": ("report",),
    "version": ("study",),
    "watch": ("watch",),
}

# Base class of all usage errors (unknown option, missing argument).
# typer vendors click in some versions and depends on it in others, so the class is found by name among the bases.
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
    """Run one command line and return its exit code.

    Parameters
    ----------
    arguments : list of str
        Words of the command line without the name of the program.

    Returns
    -------
    int
        The exit code. Errors that are not foreseen pass through as exceptions, with their traceback: they are faults of
        the program. With `--log-json` they are one line of the log, and the exit code is 1.
    """
    # Not from the parsed options: an error of the parser must be JSON too.
    as_json, log_json = "--json" in arguments, "--log-json" in arguments

    def fail(kind: str, message: str, code: int, detail: str = "") -> int:
        return _fail(as_json, kind, message, code, detail, log_json=log_json)

    try:
        load(*arguments[:1])
        # Without standalone mode typer returns the exit code and raises its errors here, instead of printing them and
        # ending the process.
        code = app(args=arguments, prog_name="zerosum", standalone_mode=False)
        if code == 130:  # typer's exit code after Ctrl-C
            raise KeyboardInterrupt
        return int(code or 0)
    except ZerosumError as error:
        return fail(type(error).__name__, str(error), error.exit_code, error.detail)
    except _UsageProblem as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help page
            print(message)
            return 2
        return fail("UsageError", " ".join(message.split()), 2)
    except (KeyboardInterrupt, typer.Abort) as stop:
        # The archive of results adds a note with the cost to the exception that ends a run; typer.Abort has that
        # exception as its cause.
        notes = getattr(stop.__cause__, "__notes__", [])
        return fail("Interrupted", "; ".join(["interrupted", *notes]), 130)
    # The reader of a pipe has ended, as in `zerosum results | head`.
    except BrokenPipeError:
        return 0
    except Exception as fault:
        # A traceback in text would be many lines that a log collector cannot read.
        if not log_json:
            raise
        from zerosum.cli.log import log_fault

        log_fault(fault)
        return 1


def _fail(as_json: bool, kind: str, message: str, code: int, detail: str = "", *, log_json: bool = False) -> int:
    """Print an error and return its exit code.

    Parameters
    ----------
    as_json : bool
        Print to stdout as JSON, where a program reads the result; otherwise to stderr.
    kind : str
        Name of the error's class, on which programs may branch.
    message : str
        The error in one sentence. It may be forwarded to other parties.
    code : int
        Exit code.
    detail : str
        Facts for the holder of the data only. The JSON leaves them out, because it is often stored or sent on.
    log_json : bool
        Print the error to stderr as a line of the log, for log collectors.
    """
    if log_json:
        from zerosum.cli.log import log_error

        log_error(kind, message)
    if as_json:
        print(json.dumps({"error": {"type": kind, "message": message}}))
    elif not log_json:
        terminal.show_error(message, detail)
    return code
