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

_log = logging.getLogger("zerosum")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        more: dict[str, Any] = getattr(record, "fields", {})
        line = {"time": time, "level": record.levelname.lower(), "event": getattr(record, "event", "log")}
        line |= {"words": record.getMessage()} | more
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        more: dict[str, Any] = getattr(record, "fields", {})
        study = f"{more['study']}: " if "study" in more else ""
        text = "".join(each if each.isprintable() else "?" for each in f"{study}{record.getMessage()}")
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def start_logging(as_json: bool) -> None:
    """Start to log to stderr in this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    _log.handlers = [handler]
    _log.propagate = False
    _log.setLevel(logging.INFO)


def log_event(event: str, words: str, **fields: Any) -> None:
    """Log one event with its text and further fields."""
    _log.info("%s", words, extra={"event": event, "fields": fields})
