"""Items of `enqueue_many` that have options of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from pulse.client.options import ItemOptions, check_options
from pulse.errors import InvalidArgument
from pulse.handlers.handler import Handler
from pulse.payload import encode

_KNOWN = frozenset(ItemOptions.__annotations__)


class JobItem:
    """An item of `enqueue_many` with options of its own: they win over those of the call."""

    __slots__ = ("args", "options")

    def __init__(self, args: object = None, /, **options: Unpack[ItemOptions]) -> None:
        if unknown := sorted(options.keys() - _KNOWN):
            raise InvalidArgument(
                f"An item has no option {unknown[0]!r}. Its options are {', '.join(sorted(_KNOWN))}."
            )
        check_options(options)
        self.args = args
        self.options: ItemOptions = options

    def merged_with(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return its options, and those of the call for what it leaves out."""
        options = {**shared, **{name: value for name, value in self.options.items() if value is not None}}
        # Both set when the job may start: that of the item replaces either of the call.
        if "delay" in self.options or "run_at" in self.options:
            options["delay"], options["run_at"] = self.options.get("delay"), self.options.get("run_at")
        return options

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"JobItem({self.args!r}{options})"


def encode_items(items: Iterable[object], handler: Handler | None) -> list[bytes]:
    """Return the payload of each item. Raises InvalidArgument for one that the handler could not read."""
    encoded: list[bytes] = []
    for item in items:
        args = item.args if type(item) is JobItem else item
        try:
            payload = encode(args)
            if handler is not None and not isinstance(args, bytes):
                handler.check(payload)
        except InvalidArgument as error:
            raise of_item(len(encoded), error) from error.__cause__
        encoded.append(payload)
    return encoded


def of_item(number: int, error: InvalidArgument) -> InvalidArgument:
    """Return the error with the number of its item, which counts as in PartialFailure: from 0."""
    return InvalidArgument(f"Item number {number}: {error.message}")
