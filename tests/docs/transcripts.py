"""Holds what a page says that a program prints against what it prints.

Ids, times, spans of time, addresses and names of workers differ from run to run: any other will do. An id
that a page shows twice has to be the same twice. `…` stands for anything, and alone on a line for any number
of lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SPAN = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+(?!\w)"
# What differs from run to run, as pages have it, and what may stand there instead.
_VARYING = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?(?: UTC)?": (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3}| [A-Z]{3,5}| [+-]\d{2,4})?"
    ),
    rf"{_SPAN} ago": rf"(?:{_SPAN} ago|now)",
    _SPAN: _SPAN,
    r"(?:[a-z][\w.-]*|127\.0\.0\.1):\d+": r"[\w.-]+:\d+",
    r"[\w.-]+-\d+-[0-9a-f]{6}(?!\w)": r"[\w.-]+-\d+-[0-9a-f]{6}",  # a worker: host, process, a random end
}
_TOKEN = re.compile(rf"…|(?<![\w.-])(?:(?P<id>{_ID})|{'|'.join(f'({shown})' for shown in _VARYING)})")


@dataclass
class Transcript:
    """Compares one piece after the other, and remembers which id of the page stands for which real one."""

    real_ids: dict[str, str] = field(default_factory=dict)

    def as_typed(self, command: str) -> str:
        """Return a command of the page with the ids of the actual jobs."""
        return re.sub(_ID, lambda found: self.real_ids.get(found[0], found[0]), command)

    def is_whole(self, shown: str, printed: str) -> bool:
        """Whether the output is that of the page, from the first line to the last."""
        expected = _Expected(self.real_ids)
        return self._learn(expected, expected.pattern(shown).fullmatch(_tidy(printed))) is not None

    def end_in(self, shown: str, printed: str, start: int = 0) -> int | None:
        """Return where the lines of the page end in the output, or None if they are not there yet."""
        expected = _Expected(self.real_ids)
        found = self._learn(expected, expected.pattern(shown).search(printed, start))
        return None if found is None else found.end()

    def _learn(self, expected: _Expected, found: re.Match[str] | None) -> re.Match[str] | None:
        if found is not None:
            self.real_ids |= {shown: found[name] for shown, name in expected.new_ids.items()}
        return found


class _Expected:
    """Makes a pattern of the text of a page. `new_ids` maps an id of the page to its group."""

    def __init__(self, real_ids: dict[str, str]) -> None:
        self._real_ids = real_ids
        self.new_ids: dict[str, str] = {}

    def pattern(self, shown: str) -> re.Pattern[str]:
        lines = (line.strip() for line in _tidy(shown).splitlines())
        patterns = (r"(?:[^\n]*\n)*?" if line == "…" else rf"^ *{self._line(line)} *\n" for line in lines)
        return re.compile("".join(patterns), re.MULTILINE)

    def _line(self, line: str) -> str:
        parts, end = [], 0
        for found in _TOKEN.finditer(line):
            parts += [_literal(line[end : found.start()]), self._token(found)]
            end = found.end()
        return "".join([*parts, _literal(line[end:])])

    def _token(self, found: re.Match[str]) -> str:
        if found[0] == "…":
            return r"[^\n]*?"
        if found["id"]:
            return self._id(found["id"])
        return next(
            other for other, shown in zip(_VARYING.values(), found.groups()[1:], strict=True) if shown
        )

    def _id(self, shown: str) -> str:
        if shown in self._real_ids:
            return re.escape(self._real_ids[shown])
        if shown in self.new_ids:
            return f"(?P={self.new_ids[shown]})"
        self.new_ids[shown] = f"id{len(self.new_ids)}"
        return f"(?P<{self.new_ids[shown]}>{_ID})"


def _literal(text: str) -> str:
    """Return the pattern of the text; columns may be wider than on the page."""
    return re.sub(r"(?:\\ )+", " +", re.escape(text))


def _tidy(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())
