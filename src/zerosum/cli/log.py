"""Logs of long-running processes: text lines for people, or JSON lines for log collectors.

Every JSON line has `time`, `level`, `event` and `words`, and if known `study`, `plan` and `site`. No line contains a
value, a row or a count of the data.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

LogJson = Annotated[bool, typer.Option("--log-json", help="Log to stderr as JSON lines.")]

# The package's own logger: applications that use Zerosum as a library choose their handlers themselves.
_log = logging.getLogger("zerosum")


class _JsonFormatter(logging.Formatter):
    """One JSON object per line. `json.dumps` escapes line breaks, so that text from other parties cannot forge a second
    line."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        more: dict[str, Any] = getattr(record, "fields", {})
        line = {"time": time, "level": record.levelname.lower(), "event": getattr(record, "event", "log")}
        line |= {"words": record.getMessage()} | more
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _TextFormatter(logging.Formatter):
    """Text for people, with the study's name in front. Characters that cannot be printed become question marks, because
    a terminal obeys control characters, and the text may come from other parties."""

    def format(self, record: logging.LogRecord) -> str:
        more: dict[str, Any] = getattr(record, "fields", {})
        study = f"{more['study']}: " if "study" in more else ""
        text = "".join(each if each.isprintable() else "?" for each in f"{study}{record.getMessage()}")
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def start_logging(as_json: bool) -> None:
    """Start to log to stderr in this process.

    Parameters
    ----------
    as_json : bool
        JSON lines for log collectors; otherwise text.
    """
    handler = logging.StreamHandler(sys.stderr)
    # Warnings of Python and its libraries are lines of the log, too.
    logging.captureWarnings(as_json)
    logging.getLogger("py.warnings").handlers = [handler] if as_json else []
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    # Replaced rather than added: a second start in one process must not print every line twice.
    _log.handlers = [handler]
    # The root logger may have a handler of another library, which would repeat the line in its own format.
    _log.propagate = False
    _log.setLevel(logging.INFO)


def log_fault(fault: BaseException) -> None:
    """Log a fault of the program that ends this process, with its traceback, as one JSON line."""
    start_logging(True)
    information = type(fault), fault, fault.__traceback__
    _log.critical("%s", "a fault of the program", exc_info=information, extra={"event": "fault", "fields": {}})


def log_event(event: str, words: str, **fields: Any) -> None:
    """Log one event with its text and further fields.

    Parameters
    ----------
    event : str
        Short name, on which monitors can filter.
    words : str
        The event in a sentence.
    fields : JSON-compatible
        Public facts only, such as `study`, `plan` (a digest) and `site`: logs are often sent to other machines.
    """
    # With a fixed format: a per cent sign in the text is not a placeholder.
    _log.info("%s", words, extra={"event": event, "fields": fields})


def log_error(kind: str, message: str) -> None:
    """Log the error that ends this process, as a JSON line.

    Parameters
    ----------
    kind : str
        Name of the error's class.
    message : str
        The error in one sentence, without facts about data.
    """
    start_logging(True)
    _log.error("%s", message, extra={"event": "error", "fields": {"type": kind}})
