"""Pydantic models as arguments: what is stored is what the handler reads, or enqueue refuses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import pydantic
import pytest

import pulse
from pulse.handlers.handler import Handler
from pulse.payload import encode
from tests.rows import each_row


class Child(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    street_name: Annotated[str, pydantic.Field(alias="streetName")]


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    from_: Annotated[str, pydantic.Field(alias="from")]
    home: Child

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.from_)


class WrittenOtherwise(pydantic.BaseModel):
    to: Annotated[str, pydantic.Field(serialization_alias="toAddress")]


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    to: Annotated[str, pydantic.Field(validation_alias=pydantic.AliasChoices("To", "TO"))]


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


@dataclass
class Holder:
    strict: Strict
    aliased: Aliased


class Measured(pydantic.BaseModel):
    value: float | None = None


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr
    note: str = ""


class Nested(pydantic.BaseModel):
    logins: list[Login]


class Revealed(pydantic.BaseModel):
    token: pydantic.SecretStr

    @pydantic.field_serializer("token")
    def _reveal(self, token: pydantic.SecretStr) -> str:
        return token.get_secret_value()


class Hidden(pydantic.BaseModel):
    to: Annotated[str, pydantic.Field(exclude=True)]


class Broken(pydantic.BaseModel):
    to: str

    @pydantic.field_serializer("to")
    def _fail(self, to: str) -> str:
        raise KeyError("a bug of the serializer")


ALIASED = Aliased.model_validate({"from": "a", "home": {"streetName": "b"}})


def handler_of(annotation: Any) -> Handler:
    def handle(args: Any) -> Any:
        return args

    handle.__annotations__["args"] = annotation
    return Handler("t", handle, {})


@each_row(
    "given",
    [
        ALIASED,
        WrittenOtherwise(to="a"),
        ByName(to="a"),
        Strict(at=datetime(2030, 1, 1, tzinfo=UTC)),
        Holder(Strict(at=datetime(2030, 1, 1, tzinfo=UTC)), ALIASED),
        Measured(value=None),
        Login(password=pydantic.SecretStr(""), note="*****"),
        Revealed(token=pydantic.SecretStr("s3cret")),
        Path("/tmp/a b.txt"),
        PurePosixPath("relative"),
    ],
)
def test_handler_reads_what_was_given(given: Any) -> None:
    handler = handler_of(type(given))
    assert handler.decode(handler.encode_call((given,), {})) == given


def test_path_is_a_parameter_and_a_field() -> None:
    def handle(source: Path, copies: list[Path]) -> Any:
        return source, copies

    handler = Handler("t", handle, {})
    payload = handler.encode_call((Path("/a"), [Path("b")]), {})
    assert payload == b'{"source":"/a","copies":["b"]}'
    assert handler.decode(payload) == {"source": Path("/a"), "copies": [Path("b")]}
    with pytest.raises(pulse.InvalidArgument, match=r"Expected a path as `str`, got `int` - at `\$\.source`"):
        handler.check(b'{"source":5,"copies":[]}')


@each_row(
    "given, field",
    [
        (Login(password=pydantic.SecretStr("hunter2")), r"Login\.password is a secret"),
        (
            Nested(logins=[Login(password=pydantic.SecretStr("x"))]),
            r"Nested\.logins\[0\]\.password is a secret",
        ),
        ([Login(password=pydantic.SecretStr("x"))], r"Login\.password is a secret"),
        ({"password": pydantic.SecretStr("x")}, "SecretStr holds a secret"),
        (Measured(value=math.nan), r"NaN or infinity at `\$\.value`"),
        (Measured(value=-math.inf), r"NaN or infinity at `\$\.value`"),
        ({"a": [1.0, None, {"b": math.inf}]}, r"NaN or infinity at `\$\.a\[2\]\.b`"),
        ([Measured(value=math.nan)], r"NaN or infinity at `\$\[0\]\.value`"),
        (math.nan, r"NaN or infinity at `\$`"),
        (Broken(to="a"), "a bug of the serializer"),
    ],
)
def test_what_would_be_stored_as_something_else_is_refused(given: Any, field: str) -> None:
    """Without a handler too: most producers have none."""
    with pytest.raises(pulse.InvalidArgument, match=field):
        encode(given)


def test_null_is_stored_where_none_was_given() -> None:
    assert encode({"a": None, "b": "null", "c": 1.5}) == b'{"a":null,"b":"null","c":1.5}'
    assert encode(Measured()) == b'{"value":null}'


def _typed(to: str, count: int = 1) -> None: ...


def _document(args: Aliased) -> None: ...


def _hidden(args: Hidden) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "field"),
    [
        (_typed, (5,), r"Expected `str`, got `int` - at `\$\.to`"),
        (_typed, ("a", "many"), r"Expected `int`, got `str` - at `\$\.count`"),
        (_document, ({"from": "a", "home": {}},), r"Field required - at `\$\.home\.streetName`"),
        (_document, ({"from": "a", "home": {"streetName": "b"}, "x": 1},), r"at `\$\.x`"),
        (_hidden, (Hidden(to="a"),), r"Field required - at `\$\.to`"),
    ],
)
async def test_arguments_that_the_handler_could_not_read_are_refused_at_enqueue(
    p: pulse.Pulse, function: Callable[..., Any], args: tuple[Any, ...], field: str
) -> None:
    job = p.register("t", function)
    with pytest.raises(pulse.InvalidArgument, match=f"The handler of 't' could not read this job.*{field}"):
        await job.enqueue(*args)
    document = args[0] if function is not _typed else dict(zip(("to", "count"), args, strict=False))
    with pytest.raises(pulse.InvalidArgument, match=field):
        await job.enqueue_many([document])
    with pytest.raises(pulse.InvalidArgument, match=field):
        await p.enqueue("t", document)
    with pytest.raises(pulse.InvalidArgument, match=field):
        await p.enqueue_many("t", [document])


async def test_error_of_a_validator_does_not_leave_the_sdk(p: pulse.Pulse) -> None:
    class Checked(pydantic.BaseModel):
        to: str

        @pydantic.field_validator("to")
        @classmethod
        def _check(cls, to: str) -> str:
            raise LookupError("a bug of the validator")

    async def handle(args: Checked) -> None: ...

    job = p.register("t", handle)
    with pytest.raises(pulse.InvalidArgument, match="LookupError: a bug of the validator"):
        await job.enqueue({"to": "a"})
