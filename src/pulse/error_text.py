"""The text of an error: as it is stored, as it is read again, and in a line of a log."""

from __future__ import annotations

import asyncio
import builtins
import json
import logging
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulse import tuning

_HERE = str(Path(__file__).parent) + os.sep
# The way asyncio stops a task: `asyncio.timeout()` raises TimeoutError from one. It explains nothing.
_NOT_A_CAUSE = (asyncio.CancelledError, GeneratorExit)
# A pool of processes sets such an error, with a traceback as text, as the cause of a child's error.
_REMOTE_TRACEBACKS = ("_RemoteTraceback", "RemoteTraceback")
# The length of the first line: lists show the cause as well.
_FIRST_LINE_CHARACTERS = 200
# How much of the cause is named in the first line. The server knows this number.
_NAMED_CHARACTERS = 300
# More are counted, not shown. The innermost cause is always shown.
_MOST_ERRORS = 10
# A chain or group longer than this is not read to its end.
_MOST_READ = 200

CAUSE_NAMED = " [cause: "
# The second line of a section. Without it the class is a builtin: its name in the first line is enough.
CLASS_LABEL = "  Class: "
# A longer one is left out.
_CLASS_CHARACTERS = 300
# A longer first line is cut: it would push out the class and the frames.
_MESSAGE_BYTES = tuning.ERROR_BYTES - 1024

# Of the traceback in a process of a pool: its last frames, and the error.
_MOST_REMOTE_LINES = 20

# An error with more in its chain, or with longer messages, is logged as it is stored. To write five thousand
# in full, or to escape a megabyte, takes seconds: in the event loop, and with the lock of the log.
_MOST_LOGGED_ERRORS = 30
_MOST_LOGGED_CHARACTERS = 32 * 1024

# A label ("Caused by ", or nothing for the error itself) and an error.
_Link = tuple[str, BaseException]


def describe(error: BaseException, headline: str = "") -> str:
    """Return the error, its class, its notes, its traceback and its causes, in a form to store.

    `headline` replaces its type and message, and its traceback is left out then.
    """
    links = list(_links(error))
    innermost = innermost_cause(error)
    shown = _shown(links, innermost)
    sections = [_section(label, one, headline if one is error else "") for label, one in shown]
    if innermost is not error:
        sections[0] = _with_cause(sections[0], _head(innermost))
    sections = [
        with_class(section, type(one), is_named=not headline or one is not error)
        for section, (_, one) in zip(sections, shown, strict=True)
    ]
    if hidden := len(links) - len(sections):
        sections.append(f"  ({hidden} more errors are not shown.)")
    return clean("\n\n".join(_fitted(sections)))


def with_class(text: str, kind: type[BaseException], *, is_named: bool = True) -> str:
    """Return the text with the class path as its second line, unless it is a builtin or not to be named.

    A message whose own second line could pass for a class path gets one in any case.
    """
    first, newline, rest = text.partition("\n")
    path = f"{kind.__module__}.{kind.__qualname__}"
    is_plain = kind.__module__ == "builtins" or not is_named
    if (
        (is_plain and not rest.startswith(CLASS_LABEL))
        or len(path) > _CLASS_CHARACTERS
        or not path.isprintable()
        or " " in path
    ):
        return text
    return f"{_cut(first, _MESSAGE_BYTES)}\n{CLASS_LABEL}{path}{newline}{rest}"


def is_too_long_to_log(error: BaseException) -> bool:
    """True if the whole error, with everything that led to it, is too much for a log."""
    characters = 0
    for errors, (_, one) in enumerate(_links(error), 1):
        characters += len(_text(one))
        if errors > _MOST_LOGGED_ERRORS or characters > _MOST_LOGGED_CHARACTERS:
            return True
    return False


def innermost_cause(error: BaseException) -> BaseException:
    """Return the error at the end of the chain of causes. In a group, follow the first cause."""
    seen: set[int] = set()
    while len(seen) < _MOST_READ:
        seen.add(id(error))
        within = [inner for _, inner in _inner(error) if id(inner) not in seen]
        if not within:
            break
        error = next((inner for inner in within if not isinstance(inner, _NOT_A_CAUSE)), within[0])
    return error


def clean(text: str) -> str:
    """Return the text without NUL, which Postgres refuses, as valid UTF-8 of at most 8 KiB."""
    text = text.replace("\x00", "")
    if len(text) * 4 <= tuning.ERROR_BYTES and text.isascii():
        return text
    return _cut(text, tuning.ERROR_BYTES)


def _links(error: BaseException) -> Iterator[_Link]:
    """Yield the error and the errors that led to it, each once, in the order of the text."""
    waiting: list[_Link] = [("", error)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_READ:
        label, error = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield label, error
        prefix = label[:-2] + "." if label.startswith("Sub-exception") else "Sub-exception "
        inner = [(label.format(prefix), within) for label, within in _inner(error)]
        waiting.extend(reversed(inner))


def _inner(error: BaseException) -> list[_Link]:
    """Return the errors directly behind this one: the members of a group, then its cause or context."""
    inner: list[_Link] = []
    if isinstance(error, BaseExceptionGroup):
        members = error.exceptions[:_MOST_READ]
        inner = [(f"{{}}{number}: ", member) for number, member in enumerate(members, 1)]
    if error.__cause__ is not None:
        behind, label = error.__cause__, "Caused by "
    elif error.__context__ is not None and not error.__suppress_context__:
        behind, label = error.__context__, "While handling "
    else:
        return inner
    is_no_cause = isinstance(behind, _NOT_A_CAUSE) or type(behind).__name__ in _REMOTE_TRACEBACKS
    return inner if is_no_cause else [*inner, (label, behind)]


def _shown(links: list[_Link], innermost: BaseException) -> list[_Link]:
    """Return as many as are shown. The first one is the error itself, and the innermost cause is included."""
    if len(links) <= _MOST_ERRORS:
        return links
    first, rest = links[: _MOST_ERRORS - 1], links[_MOST_ERRORS - 1 :]
    return first + [link for link in rest if link[1] is innermost][:1]


def _section(label: str, error: BaseException, headline: str) -> str:
    lines = [label + (headline or _head(error))]
    notes = getattr(error, "__notes__", None)
    for note in notes if isinstance(notes, list | tuple) else ():
        lines.append("  Note: " + _text(note).replace("\n", "\n    "))
    if type(error.__cause__).__name__ in _REMOTE_TRACEBACKS:
        lines += ["  In a process of a pool:", *(f"    {line}" for line in _remote_lines(error.__cause__))]
    if headline:
        return "\n".join(lines)
    # Without the frames of the SDK: they are no help to a user, and always come first.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__, limit=-_MOST_READ)
        if not frame.filename.startswith(_HERE)
    ]
    if frames:
        lines += [] if label else [""]
        lines.extend(line.rstrip() for line in _frame_lines(frames))
    return "\n".join(lines)


def _frame_lines(frames: list[traceback.FrameSummary]) -> list[str]:
    """Return the first frames, which are the handler's, and the last ones, where the error was raised."""
    first, last = tuning.TRACEBACK_FIRST_FRAMES, tuning.TRACEBACK_LAST_FRAMES
    hidden = len(frames) - first - last
    if hidden <= 0:
        return traceback.format_list(frames)
    return [
        *traceback.format_list(frames[:first]),
        f"  ({hidden} frames are not shown.)",
        *traceback.format_list(frames[-last:]),
    ]


def _remote_lines(traceback_of_pool: object) -> list[str]:
    return [line for line in _text(traceback_of_pool).splitlines() if line.strip(' "')][-_MOST_REMOTE_LINES:]


def _head(error: BaseException) -> str:
    name, text = type(error).__qualname__, _text(error)
    return (f"{name}: {text}" if text else name).replace("\x00", "")


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return "(its message cannot be printed)"


def _with_cause(section: str, cause: str) -> str:
    """Return the section with the cause named at the end of its first line."""
    first, newline, rest = section.partition("\n")
    if len(first) > _FIRST_LINE_CHARACTERS:
        rest = f"…{first[_FIRST_LINE_CHARACTERS:]}{newline}{rest}"
        first, newline = f"{first[:_FIRST_LINE_CHARACTERS]}…", "\n"
    named = cause.partition("\n")[0][:_NAMED_CHARACTERS]
    return f"{first}{CAUSE_NAMED}{named}]{newline}{rest}"


def _fitted(sections: list[str]) -> list[str]:
    """Return sections that fit together. A long one must not push out the next, which may be the cause."""
    if len(sections) == 1 or sum(map(len, sections)) * 4 <= tuning.ERROR_BYTES:
        return sections
    sizes = [len(section.encode("utf-8", "replace")) + 2 for section in sections]
    if sum(sizes) <= tuning.ERROR_BYTES:
        return sections
    # Short sections stay whole, and long sections share the rest.
    left, share = tuning.ERROR_BYTES, 0
    for shared_by, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        share = left // shared_by
        if size > share:
            break
        left -= size
    return [_cut(section, share - 2) for section in sections]


def _cut(text: str, most_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


_MOST_CHARACTERS = 500


def in_a_line(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return the text with control and invisible characters escaped, cut to this many characters.

    Topics, errors and metadata come from producers and handlers: a line break in one would forge a line of
    the log, and an escape sequence would reach the terminal that shows it.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )


_LABEL = re.compile(r"(Caused by|While handling|Sub-exception [0-9.]+:) ")
_FRAME = '  File "'
_NOTE = "  Note: "
_TRACEBACK = "Traceback (most recent call last):"
# Python names no module for these.
_PLAIN = ("builtins.", "__main__.")
_BETWEEN = {
    "Caused by": "The above exception was the direct cause of the following exception:",
    "While handling": "During handling of the above exception, another exception occurred:",
}
_RULE = "-" * 16


def class_path_of(text: str) -> str | None:
    """Return the class of the error, such as `shop.errors.PaymentDeclined`. None if the text has none."""
    first, _, rest = text.partition("\n")
    if rest.startswith(CLASS_LABEL):
        return rest.partition("\n")[0].removeprefix(CLASS_LABEL)
    name = re.match(r"\w+", first)
    kind = getattr(builtins, name[0], None) if name else None
    if not name or not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return None
    return f"builtins.{name[0]}" if first[name.end() :].startswith((":", " [")) or name[0] == first else None


def traceback_of(text: str) -> str | None:
    """Return the error and its causes as Python prints them, the cause first. None if the text has no class.

    It has as many frames as are stored: without those of the SDK, and of a deep stack the first and the last.
    """
    if text.startswith(_TRACEBACK):
        return text  # of a worker that stores it in this form
    if class_path_of(text) is None:
        return None
    first, *members = _split(text.split("\n"), is_member=True)
    parts = _chain(first)
    for member in members:
        label = _LABEL.match(member[0])
        assert label is not None
        number = label[1].removeprefix("Sub-exception ").removesuffix(":")
        parts += [f"+{_RULE} {number} {_RULE}", *_chain([member[0][label.end() :], *member[1:]])]
    if members:
        parts.append("+" + "-" * 36)
    return "\n".join(parts) + "\n"


def _chain(lines: list[str]) -> list[str]:
    """Return an error and the errors that led to it, the innermost first."""
    printed: list[str] = []
    for section in _split(lines, is_member=False):
        label = _LABEL.match(section[0])
        if label is None:
            printed = _printed(section)
        else:
            inner = _printed([section[0][label.end() :], *section[1:]])
            printed = [*inner, "", _BETWEEN[label[1]], "", *printed]
    return printed


def _split(lines: list[str], *, is_member: bool) -> Iterator[list[str]]:
    """Yield the lines up to each label of a member of a group, or of a cause."""
    section = lines[:1]
    for line in lines[1:]:
        if _LABEL.match(line) and line.startswith("Sub-exception") is is_member:
            yield section
            section = []
        section.append(line)
    yield section


def _printed(section: Sequence[str]) -> list[str]:
    """Return the traceback of one error, and its message below it."""
    head, *rest = section
    path = ""
    if rest and rest[0].startswith(CLASS_LABEL):
        path = rest.pop(0).removeprefix(CLASS_LABEL)
    begin = next((at for at, line in enumerate(rest) if line.startswith(_FRAME)), len(rest))
    message, frames = rest[:begin], rest[begin:]
    named = head.endswith("]") and CAUSE_NAMED in head
    head = head.rpartition(CAUSE_NAMED)[0] if named else head
    if named and head.endswith("…") and message and message[0].startswith("…"):
        head = head[:-1] + message.pop(0)[1:]  # the first line was cut to show the cause
    name = head.partition(":")[0]
    if path and not path.startswith(_PLAIN):
        head = path + head[len(name) :] if path.endswith(f".{name}") else f"{path}: {head}"
    stack = [_TRACEBACK, *_trimmed(frames)] if frames else []
    note_at = next((at for at, line in enumerate(message) if line.startswith(_NOTE)), len(message))
    notes = [line.removeprefix(_NOTE).removeprefix("    ") for line in message[note_at:]]
    return [*stack, head, *_trimmed(message[:note_at] + notes)]


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


# Enough for the frames and the message of any ordinary error.
_EXCEPTION_CHARACTERS = 64 * 1024
# Of a record, but not of its line: the rest is what `extra` has added.
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "pulse_job",
}


class BoundedFormatter(logging.Formatter):
    """Shortens long exceptions."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - a name of logging
        text = super().formatException(ei)
        left_out = len(text) - _EXCEPTION_CHARACTERS
        if left_out <= 0:
            return text
        half = _EXCEPTION_CHARACTERS // 2
        return f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"


class JsonFormatter(BoundedFormatter):
    """Formats a record as one line of JSON, with the keys of pulsed: time, level, event, logger, exception.

    `event` is the message. `extra` and the running job add their fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.processName not in (None, "MainProcess"):
            line["process"] = record.processName
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if not extra.get("pulse_job_id"):  # not in a handler
            extra = {name: value for name, value in extra.items() if not name.startswith("pulse_")}
        line.update(extra)
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        # ASCII: no control character reaches a terminal.
        return json.dumps(line, default=str)
