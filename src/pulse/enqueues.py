"""The options and items of enqueues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack, cast

from pulse.errors import InvalidArgument
from pulse.handlers.handler import Handler
from pulse.jobs.submissions import ItemOptions, SharedOptions, check_known, check_values
from pulse.messages import check_payload
from pulse.payload import encode


def completed(options: SharedOptions, handler: Handler) -> ItemOptions:
    """Return the options. The handler's options replace missing ones."""
    theirs = handler.options
    return _over(
        options,
        {"priority": theirs.priority, "start_within": theirs.start_within, "unique": theirs.unique},
    )


def _over(options: Mapping[str, Any], base: Mapping[str, Any]) -> ItemOptions:
    given = {name: value for name, value in options.items() if value is not None}
    return cast("ItemOptions", {**base, **given})


class JobItem:
    """An item of `enqueue_many` with options. They override the options of the call."""

    __slots__ = ("args", "options")

    def __init__(self, args: object = None, /, **options: Unpack[ItemOptions]) -> None:
        check_known("An item", options, ItemOptions.__annotations__.keys())
        check_values(options)
        self.args = args
        self.options: ItemOptions = options

    def merged_with(self, shared: SharedOptions) -> ItemOptions:
        """Return the options of the item. The options of the call replace missing ones."""
        options = _over(self.options, shared)
        # Both options set the start: either of them on the item overrides both of the call.
        if "delay" in self.options or "run_at" in self.options:
            options["delay"], options["run_at"] = self.options.get("delay"), self.options.get("run_at")
        return options

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"JobItem({self.args!r}{options})"


def encode_items(items: Iterable[object], handler: Handler | None) -> list[bytes]:
    """Return the payload of each item. Raises InvalidArgument for one that the handler could not read.

    Also for one that is too large.
    """
    encoded: list[bytes] = []
    for item in items:
        args = item.args if type(item) is JobItem else item
        try:
            check_payload(payload := encode(args))
            if handler is not None and not isinstance(args, bytes):
                handler.check(payload)
        except InvalidArgument as error:
            raise of_item(len(encoded), error) from error.__cause__
        encoded.append(payload)
    return encoded


def of_item(number: int, error: InvalidArgument) -> InvalidArgument:
    """Return the error with the number of its item, which counts as in PartialFailure: from 0."""
    return InvalidArgument(f"Item number {number}: {error.message}")
