"""The findings of a check, and how they are printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_WIDTH = 100
_SUBJECT = 12


class Level(StrEnum):
    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "FAIL"
    """pulsed would not start, or could not serve."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one subject. If the operator must act, the sentence says how."""

    level: Level
    subject: str
    sentence: str


def ok(subject: str, sentence: str) -> Finding:
    return Finding(Level.OK, subject, sentence)


def info(subject: str, sentence: str) -> Finding:
    return Finding(Level.INFO, subject, sentence)


def warn(subject: str, sentence: str) -> Finding:
    return Finding(Level.WARN, subject, sentence)


def fail(subject: str, sentence: str) -> Finding:
    return Finding(Level.FAIL, subject, sentence)


def printed(findings: Iterable[Finding]) -> str:
    """The findings as aligned lines."""
    lines: list[str] = []
    for finding in findings:
        head = f"  {finding.level:<5}{finding.subject:<{_SUBJECT}}"
        lines += textwrap.wrap(
            finding.sentence,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def verdict(findings: Iterable[Finding]) -> str:
    """The last line: whether it would work."""
    levels = [finding.level for finding in findings]
    failures, warnings = levels.count(Level.FAIL), levels.count(Level.WARN)
    counted = f"{warnings} warning{'' if warnings == 1 else 's'}"
    if failures:
        return f"pulsed would not serve: {failures} problem{'' if failures == 1 else 's'}, {counted}."
    return f"pulsed would serve; {counted}." if warnings else "pulsed would serve."
