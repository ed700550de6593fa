"""Output: tables for people, JSON for programs, tab-separated fields for shell pipelines.

Results go to standard output; hints, warnings and progress go to standard error. A shape is an object of the
JSON: keys are only ever added; times are ISO 8601 in UTC, or null.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import click

from pulse_cli import tuning
from pulse_cli.inputs import FORMATS, given
from pulse_cli.terminal import (
    QUIET,
    Cell,
    Column,
    Line,
    Row,
    ago,
    can_redraw,
    full,
    hint,
    lay_out,
    local,
    print_lines,
    table_width,
)
from pulse_text import printable
from pulse_text.times import format_exact, iso

if TYPE_CHECKING:
    import pulse

T = TypeVar("T")
Thing = TypeVar("Thing", covariant=True)

Shape = dict[str, Any]


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


# ---------------------------------------------------------------- one thing, in lines

_NO_REMARK = Cell("")
_TIMELINE = (Column(""), Column("", right=True), Column(""), Column(""))


def facts(*known: tuple[str, str | datetime | None], present: datetime) -> Iterator[Line]:
    """Yield a line for each fact with a value, labels on the left."""
    present_facts = [(label, value) for label, value in known if value not in (None, "")]
    width = max((len(label) for label, _ in present_facts), default=0)
    for label, value in present_facts:
        text = full(value, present) if isinstance(value, datetime) else printable.one_line(str(value))
        yield [Cell(f"  {printable.one_line(label):<{width}}  ", QUIET), Cell(text)]


def heading(title: str) -> Line:
    return [Cell(title, "bold")]


def blank() -> Line:
    return []


def event(moment: datetime | None, present: datetime, text: str, remark: Cell = _NO_REMARK) -> Row:
    """Return an event for a `timeline`."""
    when, relative = ("–", "") if moment is None else (local(moment), ago(moment, present))
    return [Cell(f"  {when}", QUIET), Cell(relative, QUIET), Cell(printable.one_line(text)), remark]


def timeline(events: Iterable[Row]) -> list[Line]:
    """Return a line for each event."""
    return lay_out(_TIMELINE, list(events), None)[1:]


def indented(text: str, style: str = "") -> Iterator[Line]:
    """Yield the lines of a text, indented."""
    for line in text.splitlines():
        yield [Cell(f"  {line}", style)]


def payload_text(payload: bytes) -> str:
    """Return a payload as text: JSON indented, other text unchanged, bytes in hexadecimal."""
    shape = payload_shape(payload)
    if shape["payload_base64"] is None:
        return printable.in_json(json.dumps(shape["payload"], ensure_ascii=False, indent=2))
    try:
        return printable.lines(payload.decode())
    except UnicodeDecodeError:
        shown = payload[:256]
        more = f" … ({len(payload)} bytes)" if len(payload) > len(shown) else ""
        return shown.hex(" ") + more


# ---------------------------------------------------------------- pages


class Page(Protocol[Thing]):
    """A page as the SDK returns it."""

    @property
    def next_cursor(self) -> str | None: ...
    def __iter__(self) -> Iterator[Thing]: ...


def collect(
    fetch: Callable[[int, str | None], Page[T]],
    limit: int,
    everything: bool,
    cursor: str | None,
    is_enough: Callable[[], bool] = lambda: False,
) -> tuple[list[T], str | None]:
    """Fetch page by page up to the limit. Returns the items and the next cursor.

    Without `everything`, it ends early if `is_enough` returns True after a page.
    """
    found: list[T] = []
    while True:
        wanted = tuning.LARGEST_PAGE if everything else min(limit - len(found), tuning.LARGEST_PAGE)
        page = fetch(wanted, cursor)
        found += page
        cursor = page.next_cursor
        if cursor is None or (not everything and (len(found) >= limit or is_enough())):
            return found, cursor


def hint_at_more(cursor: str | None) -> None:
    """Print how to see the rest, if there is one."""
    if cursor is not None:
        hint(f"There are more: add --all or a larger --limit, or continue with --cursor {cursor}")


# ---------------------------------------------------------------- shapes


def payload_shape(payload: bytes, name: str = "payload") -> Shape:
    """The payload as JSON if it is JSON, else its bytes in base64. Both are null for an empty one."""
    if not payload:
        return {name: None, f"{name}_base64": None}
    try:
        return {name: json.loads(payload, parse_constant=_refuse), f"{name}_base64": None}
    except (ValueError, RecursionError):
        return {name: None, f"{name}_base64": base64.b64encode(payload).decode()}


def fields_shape(thing: object, names: str) -> Shape:
    """These fields of an object, in this order."""
    return {name: value_shape(getattr(thing, name)) for name in names.split()}


def value_shape(value: Any) -> Any:
    """A value as JSON. Fields of an object in it keep their names."""
    match value:
        case datetime():
            return iso(value)
        case timedelta():
            return format_exact(value)
        case Enum():
            return str(value)
        case Mapping():
            return dict(value)
        case tuple():
            return list(map(value_shape, value))
    if hasattr(value, "remaining"):  # a Progress, whose class takes long to import
        return progress_shape(value)
    if dataclasses.is_dataclass(value):
        return fields_shape(value, " ".join(field.name for field in dataclasses.fields(value)))
    return value


def time_shape(moment: datetime | None) -> str | None:
    """A moment as JSON."""
    return None if moment is None else iso(moment)


def _refuse(constant: str) -> None:
    # Python reads and writes NaN, which is not JSON.
    raise ValueError(constant)


def progress_shape(progress: pulse.Progress | None) -> dict[str, Any] | None:
    """How far an attempt has come. The cursor is null in lists."""
    if progress is None:
        return None
    remaining = progress.remaining
    return {
        "fraction": progress.fraction,
        "text": progress.text,
        "cursor": progress.cursor,
        "attempt": progress.attempt,
        "reported_at": None if progress.reported_at is None else iso(progress.reported_at),
        "remaining_seconds": None if remaining is None else round(remaining.total_seconds(), 3),
    }
