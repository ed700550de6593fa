"""Options whose value is a whole number within bounds."""

from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number from `min` to `max`. A wrong value is refused with its bounds in words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = "" if self.min is None else f" from {self.min:,}"
            bounds += " on" if self.max is None else f" to {self.max:,}"
            self.fail(f"{str(value)[:40]!r} is not a whole number{bounds}.", param, ctx)
