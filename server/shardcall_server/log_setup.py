"""Log output: one line for each event on standard error, as text on a terminal and as JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog

from shardcall_server.log_output import use_log_output


def configure_logging(level: str = "info", *, is_text: bool | None = None) -> None:
    """Configures structlog for this process. Only main functions call it, never an import.

    Args:
        level: "debug", "info", "warning" or "error".
        is_text: True for text, False for JSON; None for text if standard error is a terminal.
    """
    use_log_output()
    is_text = sys.stderr.isatty() if is_text is None else is_text
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=False) if is_text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
