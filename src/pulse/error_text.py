"""The stored text of an error: its message, its notes and traceback, and the errors that led to it.

    RenderFailed: page 3 could not be drawn [cause: ConnectionRefusedError: [Errno 111] Connection refused]
      Class: shop.errors.RenderFailed

      File "/srv/shop/render.py", line 21, in render
        raise RenderFailed("page 3 could not be drawn") from error

    Caused by ConnectionRefusedError: [Errno 111] Connection refused
      File "/srv/shop/render.py", line 19, in render
        printer.connect()

The server reads the cause from this text to group dead letters: `pulse_server.base.bounds` has to
agree on the labels and on how the first line names the cause. Classes, notes and frames are indented:
they are no part of a group. `pulse.stored_errors` reads the class and the traceback back.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

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
