"""Output: tables for people, JSON for programs, tab-separated fields for shell pipelines.

Results go to standard output; hints, warnings and progress go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

from pulse_cli.inputs.shared_options import FORMATS, given
from pulse_cli.views.shapes import Shape
from pulse_cli.views.tables import Column, Line, Row, can_redraw, hint, lay_out, print_lines, table_width
from pulse_text import printable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """How a list of one kind is printed."""

    columns: tuple[Column, ...]
    row: Callable[[T], Row]
    """The cells of a table's row, one per column."""
    shape: Callable[[T], Shape]
    """The object in JSON."""
    fields: tuple[str, ...]
    """The keys of the shape in the plain form, in this order; a dot separates nested keys."""

    def without(self, *titles: str) -> View[T]:
        """Return the view without some columns, such as those equal in every row."""
        kept = [at for at, column in enumerate(self.columns) if column.title not in titles]

        def row(thing: T) -> Row:
            cells = self.row(thing)
            return [cells[at] for at in kept]

        return View(tuple(self.columns[at] for at in kept), row, self.shape, self.fields)


class Output:
    """Prints results in the requested form."""

    def __init__(self, form: str) -> None:
        assert form in FORMATS
        self.form = form

    @property
    def is_for_people(self) -> bool:
        """True for tables, which come with sentences and hints."""
        return self.form == "table"

    @property
    def can_redraw(self) -> bool:
        """True at a terminal that can replace printed lines."""
        return self.is_for_people and can_redraw()

    def show_list(self, things: Sequence[T], view: View[T], empty: str) -> None:
        """Print a list. `empty` is the hint for an empty one, with the next step."""
        if self.form == "json":
            echo_json([view.shape(thing) for thing in things])
        elif self.form == "plain":
            for thing in things:
                shape = view.shape(thing)
                click.echo("\t".join(plain(_part(shape, name)) for name in view.fields))
        elif things:
            print_lines(table(things, view))
        elif empty:
            hint(empty)

    def show_one(self, shape: Shape, describe: Callable[[], Iterable[Line]]) -> None:
        """Print one object: its description, or its shape."""
        if self.is_for_people:
            print_lines(describe())
        else:
            self.show_shape(shape)

    def show_done(self, sentence: str, shape: Shape | list[Shape]) -> None:
        """Print the result of an action: a sentence, or the shape."""
        if self.is_for_people:
            click.echo(printable.one_line(sentence))
        else:
            self.show_shape(shape)

    def show_shape(self, shape: Shape | list[Shape]) -> None:
        """Print a shape as JSON or as lines of key and value."""
        if self.form == "json":
            echo_json(shape)
            return
        for one in shape if isinstance(shape, list) else [shape]:
            for key, value in one.items():
                click.echo(f"{key}\t{plain(value)}")


def output_here() -> Output:
    """Return the output of the running command."""
    return Output(given(click.get_current_context()).get("output", "table"))


def plain(value: Any) -> str:
    """Return a value of a shape as one field: no tabs, no line breaks, empty for null."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return printable.one_line(value)
        case dict() | list():
            return printable.one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return str(value)


def echo_json(document: Any) -> None:
    """Print JSON: indented for a terminal, on one line for a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(printable.in_json(json.dumps(document, ensure_ascii=False, indent=indent)))


def table(things: Sequence[T], view: View[T]) -> list[Line]:
    """Return the lines of a table, as wide as the terminal, or as its contents if there is none."""
    return lay_out(view.columns, [view.row(thing) for thing in things], table_width())


def _part(shape: Shape, name: str) -> Any:
    outer, _, inner = name.partition(".")
    return _part(shape[outer], inner) if inner else shape[outer]
