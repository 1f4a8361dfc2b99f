"""Structured logs on standard error: JSON, unless a terminal reads them. Never a payload, a DSN or a secret."""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import structlog


class LogSettings(Protocol):
    """The part of a process's settings that is about its log."""

    @property
    def log_level(self) -> str:
        """debug, info, warning or error."""

    @property
    def log_format(self) -> str:
        """auto, json or console."""


def configure(settings: LogSettings, **bound: Any) -> None:
    """Set up structlog and the standard library's logging in this process; `bound` goes on every line."""
    level = getattr(logging, settings.log_level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    plain = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    final: list[Any] = [structlog.dev.ConsoleRenderer()]
    if not plain:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it logs every failed try; the links say it once
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
