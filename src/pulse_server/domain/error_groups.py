"""Groups errors: the same kind of error with the same message, but for values that vary from job to job.

An error that names its cause has the group of its cause, as if that had been raised alone. The SDK writes
both (`pulse.error_text`): the first line names the cause, and the text has it again below a label.

The group is stored with the dead letter, so a change of the rules splits groups: earlier dead letters keep
the old one. docs/figures.md#dead-letters
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from itertools import takewhile

# Every pattern is linear in any text: ambiguous parts are possessive. Errors come from handlers,
# and handlers quote input of their users.

# A class, perhaps with its module. Its digits belong to it: S3Error is not EC2Error.
_KIND = re.compile(r"(?:[A-Za-z_]\w*+\.)*+[A-Z]\w*+(?=:|$)")
# A quote that was cut off counts as well.
_QUOTED = re.compile(r"(?<!\w)[bru]?(?:'[^'\n]*+(?:'|\Z)|\"[^\"\n]*+(?:\"|\Z)|`[^`\n]*+(?:`|\Z))")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TOKEN = re.compile(r"[\w@+.%~:/\\-]++")
_SEGMENT = re.compile(r"[^/\\]++")
_WORD = re.compile(r"\w++")
_DIGITS = re.compile(r"\d++")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{6,}|0x[0-9a-f]++", re.IGNORECASE)
_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")  # as Python names its files
# 1.5, -3e7, 10.0.0.1:5432, a date, a list of numbers: one value each.
_VALUES = re.compile(r"(?<!\w)[-+]?+#(?:[-+.,:;Te]{0,2}+ ?+[-+]?+#)*+Z?+")
_BLANKS = re.compile(r"\s++")

# Letters and digits mixed in a word of this length are a generated id, not a name.
_LONG_WORD = 16
# The beginning identifies an error. The rest is often a document that was received.
_CHARACTERS_READ = 2000
_CHARACTERS_COMPARED = 300

# How the SDK writes a cause. A text that merely quotes one of the two has the group of all its lines.
_CAUSE_NAMED = " [cause: "
_LABEL = re.compile(r"(?:Caused by|While handling|Sub-exception [0-9.]++:) ")
_NAMED_CHARACTERS = 300

WITHOUT_GROUP = "none"
"""How callers refer to dead letters without a group: they are older than the groups."""
LEASE_EXPIRED = "worker lease expired"
"""The recorded error of an attempt whose lease expired."""
TIME_LIMIT_EXCEEDED = "time limit exceeded"
"""The recorded error of an attempt that the server ended at its time limit."""
SNOOZED_TOO_OFTEN = "snoozed too often: what the job waits for does not happen"
"""The recorded error of a job that reached its limit of snoozes."""


def error_group(error: str) -> str:
    """The id of the group that an error belongs to: twelve hexadecimal digits, the same for errors alike."""
    return blake2b(shape(error).encode("utf-8", "replace"), digest_size=6).hexdigest()


def shape(error: str) -> str:
    """The error without its traceback, and with one sign for each value that may vary."""
    message = "\n".join(filter(_tells_what, _cause(error.strip()).splitlines()))[:_CHARACTERS_READ]
    kind = found[0] if (found := _KIND.match(message)) else ""
    text = _QUOTED.sub("''", message[len(kind) :])
    text = _UUID.sub("#", text)
    text = _TOKEN.sub(_plain, text)
    text = _BLANKS.sub(" ", text)
    return (kind + _VALUES.sub("#", text)).strip()[:_CHARACTERS_COMPARED]


def _cause(error: str) -> str:
    """The part of the text about the cause that its first line names; without a cause, the text."""
    first, *lines = error.split("\n")
    found = first.find(_CAUSE_NAMED) if first.endswith("]") else -1
    if found < 0:
        return error
    labeled: dict[str, int] = {}
    for position, line in enumerate(lines):
        if label := _LABEL.match(line):
            labeled.setdefault(line[label.end() :][:_NAMED_CHARACTERS], position)
    while found >= 0:
        # The message itself may contain the marker. The true cause has a labeled section below.
        named = first[found + len(_CAUSE_NAMED) : -1]
        if named in labeled:
            return "\n".join(_section(lines, labeled[named]))
        found = first.find(_CAUSE_NAMED, found + 1)
    return error


def _section(lines: list[str], position: int) -> Iterator[str]:
    """The lines from this label to the next one, without the label."""
    yield _LABEL.sub("", lines[position], count=1)
    yield from takewhile(lambda line: not _LABEL.match(line), lines[position + 1 :])


def _tells_what(line: str) -> bool:
    """Whether a line has the error, not a frame: the frames of a traceback are indented."""
    return bool(line) and not line[0].isspace() and not line.startswith("Traceback (most recent call last)")


def _plain(token: re.Match[str]) -> str:
    text = token[0]
    if "@" in text.strip("@"):
        return "@"
    if "/" in text or "\\" in text:
        return _SEGMENT.sub(_plain_segment, text)
    return _WORD.sub(_plain_word, text)


def _plain_segment(segment: re.Match[str]) -> str:
    """A part of a path. One with a digit is the name of something that was made for the occasion."""
    text = segment[0]
    return "#" if _DIGITS.search(text) or _TEMPORARY.match(text) else text


def _plain_word(word: re.Match[str]) -> str:
    text = word[0]
    if not _DIGITS.search(text):
        return text
    return "#" if len(text) >= _LONG_WORD or _HEX.fullmatch(text) else _DIGITS.sub("#", text)


LEASE_EXPIRED_GROUP = error_group(LEASE_EXPIRED)
TIME_LIMIT_EXCEEDED_GROUP = error_group(TIME_LIMIT_EXCEEDED)
SNOOZED_TOO_OFTEN_GROUP = error_group(SNOOZED_TOO_OFTEN)
