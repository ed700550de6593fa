"""Forms and queries: reads the input of a browser, within bounds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

import pulse
from pulse_ui import tuning
from pulse_ui.web.failures import Refused


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
