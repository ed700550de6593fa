"""The log of `pulse worker`: what handlers raise is bounded and printable in it."""

import logging
import sys

from pulse_cli.work.running import JobFormatter


def line_of(error: Exception) -> str:
    try:
        raise error
    except Exception:
        record = logging.LogRecord("shop", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    return JobFormatter("%(message)s").format(record)


def test_error_with_a_long_message_is_shortened_in_the_log() -> None:
    line = line_of(ValueError(f"{'x' * 5_000_000} the end"))
    assert len(line) < 70_000
    assert line.startswith("failed\nTraceback")
    assert "characters are left out" in line
    assert line.endswith("the end")


def test_error_cannot_control_the_terminal() -> None:
    assert line_of(ValueError("\x1b[31mred")).endswith("ValueError: \\x1b[31mred")
