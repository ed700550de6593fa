"""Reads the stored text of an error: its class, and its traceback in the form that Python prints.

`pulse.error_text` writes the text. Texts of other SDKs and of the server have no class and no traceback.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Sequence

from pulse.error_text import CAUSE_NAMED, CLASS_LABEL

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
