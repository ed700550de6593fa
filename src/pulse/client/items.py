"""Items of `enqueue_many` that have options of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from pulse.client.options import ItemOptions
from pulse.errors import InvalidArgument

_KNOWN = frozenset(ItemOptions.__annotations__)


class JobItem:
    """An item of `enqueue_many` with options of its own: they win over those of the call."""

    __slots__ = ("args", "options")

    def __init__(self, args: object = None, /, **options: Unpack[ItemOptions]) -> None:
        if unknown := sorted(options.keys() - _KNOWN):
            raise InvalidArgument(
                f"An item has no option {unknown[0]!r}. Its options are {', '.join(sorted(_KNOWN))}."
            )
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
