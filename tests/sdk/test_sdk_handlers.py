"""From a function's signature to a payload, and back to a call."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import pulse
from pulse.handlers.handler import Handler
from pulse.payload import UndecodableArgs
from tests.rows import each_row

if TYPE_CHECKING:
    pass  # type: ignore[import-not-found]


class Color(enum.Enum):
    RED = "red"


@dataclass
class Everything:
    when: datetime
    id: UUID
    price: Decimal
    blob: bytes
    color: Color
    tags: list[str] = field(default_factory=list)


class Struct(msgspec.Struct):
    to: str
    count: int = 1


class Model(pydantic.BaseModel):
    to: str
    count: int = 1


class Typed(TypedDict):
    to: str
    count: NotRequired[int]


@dataclass
class Holder:
    model: Model


def served(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the function returns when it is called through a payload."""
    handler = Handler("t", function, {})
    return handler.call(handler.decode(handler.encode_call(args, kwargs)), pulse.Context(job_id="j"))


def received(function: Callable[..., Any], payload: bytes) -> Any:
    handler = Handler("t", function, {})
    return handler.call(handler.decode(payload), pulse.Context(job_id="j"))


def test_annotated_values_come_back_as_they_were() -> None:
    def handle(args: Everything) -> Everything:
        return args

    given = Everything(datetime(2030, 1, 1, tzinfo=UTC), UUID(int=7), Decimal("1.10"), b"\x00\xff", Color.RED)
    assert served(handle, given) == given


@each_row(
    "annotation, given, expected",
    [
        (Struct, Struct("a"), Struct("a")),
        (Model, Model(to="a"), Model(to="a")),
        (Typed, {"to": "a"}, {"to": "a"}),
        (dict, {"to": "a"}, {"to": "a"}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Any, [1, "x"], [1, "x"]),
        (bytes, b"\x00raw", b"\x00raw"),
        (Struct | None, Struct("a"), Struct("a")),
        (Struct | None, None, None),
        (Annotated[Struct, "note"], Struct("a"), Struct("a")),
        (Holder, Holder(Model(to="a")), Holder(Model(to="a"))),
    ],
)
def test_one_document_of_any_kind(annotation: Any, given: Any, expected: Any) -> None:
    def handle(document):  # type: ignore[no-untyped-def]
        return document

    handle.__annotations__["document"] = annotation
    assert served(handle, given) == expected
    assert served(handle, document=given) == expected


def test_parameter_named_args_is_a_document_whatever_its_type() -> None:
    def numbers(args: list[int]) -> list[int]:
        return args

    def plain(numbers: list[int]) -> list[int]:
        return numbers

    assert received(numbers, b"[1,2]") == [1, 2]
    assert received(plain, b'{"numbers":[1,2]}') == [1, 2]
    assert served(plain, [3]) == [3]


def test_parameter_named_args_beside_others_is_a_plain_one() -> None:
    def run(command: str, args: list[str], payload: int = 1) -> tuple[object, ...]:
        return command, args, payload

    assert served(run, "ls", ["-l"]) == ("ls", ["-l"], 1)
    assert served(run, "ls", args=["-l"], payload=2) == ("ls", ["-l"], 2)


def test_plain_parameters_with_defaults() -> None:
    def handle(to: str, copies: int = 2, *, when: datetime | None = None) -> tuple[object, ...]:
        return to, copies, when

    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert served(handle, "a") == ("a", 2, None)
    assert served(handle, "a", 3, when=at) == ("a", 3, at)
    assert received(handle, b'{"to":"a","added_by_a_newer_producer":1}') == ("a", 2, None)


def test_context_stands_where_the_handler_likes() -> None:
    def first(ctx: pulse.Context, args: Struct) -> object:
        return ctx.job_id, args.to

    def last(args: Struct, ctx: pulse.Context) -> object:
        return ctx.job_id, args.to

    def by_name(args: Struct, *, ctx) -> object:  # type: ignore[no-untyped-def]
        return ctx.job_id, args.to

    def named_otherwise(context: pulse.Context | None, args: Struct) -> object:
        assert context is not None
        return context.job_id, args.to

    def plain(to: str, context: pulse.Context, copies: int = 1) -> object:
        return context.job_id, to

    def positional(ctx, /, to: str) -> object:  # type: ignore[no-untyped-def]
        return ctx.job_id, to

    for function in (first, last, by_name, named_otherwise):
        assert served(function, Struct("a")) == ("j", "a")
    for function in (plain, positional):
        assert served(function, "a") == ("j", "a")

    def alone(ctx: pulse.Context) -> object:
        return ctx.job_id

    assert received(alone, b"") == "j"
    assert received(lambda: "nothing", b'{"ignored":1}') == "nothing"


def test_empty_payload_means_no_arguments() -> None:
    def document(args: Struct) -> Struct:
        return args

    def with_default(args: Struct = Struct("default")) -> Struct:  # noqa: B008
        return args

    def optional(args: Struct | None) -> object:
        return args

    def anything(args) -> object:  # type: ignore[no-untyped-def]
        return args

    def mapping(args: dict[str, int]) -> object:
        return args

    with pytest.raises(UndecodableArgs, match=r"no arguments.*`to`"):
        received(document, b"")
    assert received(with_default, b"") == Struct("default")
    assert served(with_default) == Struct("default")
    assert received(optional, b"") is None
    assert received(anything, b"") is None
    assert received(mapping, b"") == {}


@each_row(
    "annotation, payload, field",
    [
        (Struct, b'{"to":1}', r"\$\.to"),
        (Model, b'{"to":1}', r"\$\.to"),
        (Holder, b'{"model":{"to":1}}', r"\$\.to"),
        (Struct, b"{", "truncated"),
        (Struct, b"\xff\xfe", "malformed"),
        (Typed, b"[]", "object"),
    ],
)
def test_arguments_that_do_not_fit_name_the_field(annotation: Any, payload: bytes, field: str) -> None:
    def handle(args):  # type: ignore[no-untyped-def]
        raise AssertionError("must not run")

    handle.__annotations__["args"] = annotation
    with pytest.raises(UndecodableArgs, match=field):
        received(handle, payload)
