"""What a process prints or writes of fedpact's log: text for people, or JSON lines for a collector."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
#: Bytes after which a log file is put aside, and how many of those are kept.
LARGEST = 10 * 2**20
KEPT = 10


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message and, where there is one, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _PrivateFile(RotatingFileHandler):
    """For its owner only: the text of an error may quote cells."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        return open(handle, "a", encoding="utf-8")


def speak(log_format: Format = "text", log_file: str | Path | None = None) -> None:
    """Print fedpact's log to stderr, or write it to a file that is rotated; once a process.

    Only fedpact's: on the root logger, every request to the SuperLink would be a line.
    """
    logger = logging.getLogger("fedpact")
    logger.setLevel(logging.INFO)
    if logger.handlers:
        return
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if log_file is not None:
        path = Path(log_file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _PrivateFile(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
    formatter = logging.Formatter("%(asctime)s %(name)s: %(message)s")
    if log_format == "json":
        formatter = JsonFormatter()
    handler.setFormatter(formatter)
    logger.addHandler(handler)
