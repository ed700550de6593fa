"""Forms and queries: what a browser sent, within bounds; its fields as values, or why they are invalid."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

import pulse
from pulse_ui import tuning
from pulse_ui.web.rendering import Refused


class Form:
    """The fields of a form or a query. A missing field is empty."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return the last value of a field, without surrounding space."""
        return self.raw(name).strip()

    @property
    def reason(self) -> str:
        """Why the visitor acts, for the audit: the field that `parts.reason` makes."""
        return self.text("reason")

    def raw(self, name: str) -> str:
        """Return the last value of a field as it was typed."""
        return next((value for key, value in reversed(self._fields) if key == name), "")

    def texts(self, name: str) -> list[str]:
        """Return all values of a field, in order, without duplicates."""
        return list(dict.fromkeys(value for key, value in self._fields if key == name))

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._fields)

    def items(self) -> list[tuple[str, str]]:
        return list(self._fields)


def query_of(request: Request) -> Form:
    """Return the query of the URL."""
    return Form(request.query_params.multi_items())


async def form_of(request: Request) -> Form:
    """Read the posted form. Raises Refused if it is not a form, or too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "This URL accepts forms only.")
    try:
        async with asyncio.timeout(tuning.FORM_TIMEOUT.total_seconds()):
            body = await _body_of(request)
    except TimeoutError:
        raise Refused(408, "The form took too long to arrive. Nothing was changed. Try again.") from None
    except ClientDisconnect:
        raise Refused(400, "The form is incomplete.") from None
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=tuning.FORM_FIELDS, errors="strict"
        )
    except ValueError:
        raise Refused(400, "The form cannot be read.") from None
    return Form([(name, value.replace("\r\n", "\n")) for name, value in fields])


async def _body_of(request: Request) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > tuning.FORM_BYTES:
            raise Refused(413, "The form is too large: the limit is 2 MiB.")
    return body


def local_path(path: str, otherwise: str = "/") -> str:
    """Return the path if it is a page of this dashboard, and not of another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_local and path.isprintable() and "\\" not in path else otherwise


def page_of_form(request: Request) -> str:
    """Return the path of the page whose form was sent: the URL of the action shows nothing."""
    return local_path(request.headers.get("referer", "").removeprefix(str(request.base_url).rstrip("/")))


# What fits the wire.
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")


def whole_number(form: Form, field: str, name: str, *, between: tuple[int, int] | None = None) -> int | None:
    """Return the number of a field; None if it is empty. Raises InvalidArgument if it is not a number.

    `between` is for actions that run in the background, where a refusal of pulsed would come too late.
    """
    text = form.text(field)
    if not text:
        return None
    if not _WHOLE_NUMBER.fullmatch(text):
        raise pulse.InvalidArgument(f"{name}: {text[:40]!r} is not a whole number.")
    number = int(text)
    if between is not None and not between[0] <= number <= between[1]:
        raise pulse.InvalidArgument(f"{name} must be a whole number from {between[0]} to {between[1]}.")
    return number


def further_attempts(form: Form) -> int | None:
    """Return how many attempts a retry adds; None: the default of pulsed."""
    return whole_number(form, "attempts", "Further attempts", between=tuning.FURTHER_ATTEMPTS)


def required_topic(form: Form) -> str:
    """Return the topic of a form. Raises InvalidArgument if it is empty."""
    if not (topic := form.text("topic")):
        raise pulse.InvalidArgument("Enter a topic.")
    return topic


def required_number(form: Form, field: str, name: str, *, between: tuple[int, int] | None = None) -> int:
    """Return the number of a field. Raises InvalidArgument if it is not a number, or empty."""
    number = whole_number(form, field, name, between=between)
    if number is None:
        raise pulse.InvalidArgument(f"{name} is empty: enter a whole number.")
    return number


# ---------------------------------------------------------------- fields

EDITED_PAYLOAD = 256 * 1024
"""In a form each quotation mark is sent as three characters; a form may have 2 MiB."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class InvalidField(Exception):
    """An invalid field, with the sentence to show beside it."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field
        self.sentence = sentence


class Reading:
    """Reads the fields and collects their problems."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def read(self, reader: Callable[..., Any], *arguments: object) -> Any:
        try:
            return reader(*arguments)
        except InvalidField as invalid:
            self.problems[invalid.field] = invalid.sentence
            return None


def payload_text(payload: bytes) -> str | None:
    """Return the payload as indented JSON; None: it is not JSON, or too large for a form."""
    if not payload:
        return ""
    try:
        text = msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return text if len(text) <= EDITED_PAYLOAD else None


def metadata_text(metadata: Mapping[str, str]) -> str | None:
    """Return the metadata line by line; None: an entry does not fit on a line."""
    for name, value in metadata.items():
        is_trimmed = name == name.strip() and value == value.strip()
        if not name or "=" in name or not is_trimmed or _LINE_BREAKS.search(name + value):
            return None
    return "\n".join(f"{name}={value}" for name, value in sorted(metadata.items()))


def read_topic(text: str) -> str:
    if not text.strip():
        raise InvalidField("topic", "Enter the topic of its jobs, such as send-email.")
    return text.strip()


def read_payload(text: str) -> bytes | None:
    document = text.strip().encode(errors="surrogatepass")
    if not document:
        return None
    try:
        msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidField("payload", f"Not valid JSON: {_problem(document, error)}.") from None
    return document


def _problem(document: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    found = re.match(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)", str(error))
    if found is None:
        return "it ends too early" if "truncated" in str(error) else str(error).lower().rstrip(".")
    before = document[: int(found[2])].decode(errors="replace")
    column = len(before) - before.rfind("\n")
    return f"{found[1].lower()}, at line {before.count(chr(10)) + 1}, column {column}"


def read_number(field: str, text: str) -> int | None:
    number = text.strip()
    if not number:
        return None
    if not _NUMBER.fullmatch(number):
        raise InvalidField(field, f"“{number[:40]}” is not a valid whole number.")
    return int(number)


def read_metadata(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidField("metadata", f"Line {number} is not of the form name=value.")
        if name.strip() in found:
            raise InvalidField("metadata", f"Line {number} repeats {name.strip()[:40]}.")
        found[name.strip()] = value.strip()
    return found


# The field in the server's error, the field of the form, and its name in sentences.
_FIELD_OF = {
    "name": ("name", "The name"),
    "topic": ("topic", "The topic"),
    "cron": ("cron", "The expression"),
    "every": ("every", "The interval"),
    "at": ("at", "The moment"),
    "time_zone": ("time_zone", "The time zone"),
    "payload": ("payload", "The payload"),
    "priority": ("priority", "The priority"),
    "max_attempts": ("max_attempts", "The number of attempts"),
    "metadata": ("metadata", "The metadata"),
    "catch_up": ("catch_up", "The catch-up"),
    "overlap": ("overlap", "The overlap"),
}


def refused(error: pulse.PulseError) -> tuple[str, str]:
    """Return the field that the server refused, and the sentence in the words of the form.

    The field is empty if the error names no field.
    """
    if isinstance(error, pulse.AlreadyExists):
        return "name", "Another schedule already has this name. Choose another one, or edit that schedule."
    named, _, rest = str(error).partition(" ")
    if named not in _FIELD_OF:
        return "", str(error)
    field, name = _FIELD_OF[named]
    return field, f"{name} {rest}"
