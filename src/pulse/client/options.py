"""The options of enqueues and of schedules, each listed once, and items of `enqueue_many` with their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

from pulse.errors import InvalidArgument
from pulse.handlers.handler import Handler
from pulse.handlers.options import check_values
from pulse.messages import check_payload
from pulse.models.schedules import CatchUp, Overlap
from pulse.models.unique import Unique
from pulse.payload import encode

Verb = TypeVar("Verb", bound=Callable[..., Any])


class SharedOptions(TypedDict, total=False):
    """The options of an enqueue that many jobs can share."""

    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    max_attempts: int | None
    start_within: timedelta | None
    lane: str | None
    metadata: Mapping[str, str] | None
    unique: Unique | Literal[False] | None


class ItemOptions(SharedOptions, total=False):
    """The options of one item of `enqueue_many`."""

    key: str | None
    job_id: str | None


class ManyOptions(SharedOptions, total=False):
    """The options of `enqueue_many`."""

    timeout: timedelta | None


class EnqueueOptions(ItemOptions, ManyOptions, total=False):
    """The options of `enqueue`."""


class ScheduleOptions(TypedDict, total=False):
    """The options of schedules."""

    name: str | None
    priority: int | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    catch_up: CatchUp
    start_within: timedelta | None
    overlap: Overlap


OPTIONS = frozenset(EnqueueOptions.__annotations__)
_DEFAULTS: Mapping[str, object] = {"catch_up": "one", "overlap": "allow", "handle_signals": True}


def takes(options: type[Any]) -> Callable[[Verb], Verb]:
    """Show these options one by one in the signature of a verb, as `help()` and the reference print it.

    Type checkers see them by `Unpack`.
    """
    shown = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=annotation.__forward_arg__,
        )
        for name, annotation in options.__annotations__.items()
    ]

    def show(verb: Verb) -> Verb:
        signature = inspect.signature(verb)
        own = list(signature.parameters.values())[:-1]
        verb.__signature__ = signature.replace(parameters=[*own, *shown])  # type: ignore[attr-defined]
        return verb

    return show


def check_known(what: str, options: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise InvalidArgument for an option that there is not."""
    if unknown := sorted(options.keys() - known):
        names = ", ".join(sorted(known))
        raise InvalidArgument(f"{what} has no option {unknown[0]!r}. Its options are {names}.")


def check_shared_unique(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for options of `enqueue_many` that give all items one unique key."""
    if (unique := options.get("unique")) and getattr(unique, "key", None) is not None:
        raise InvalidArgument(
            "unique with a key makes one job of all items: give it `by`, the fields that make the key of "
            "each."
        )


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
