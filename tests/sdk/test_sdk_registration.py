"""Which functions can be handlers, and how their jobs are enqueued."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

import pulse
from pulse.handlers.handler import Handler
from pulse.payload import decode_json, encode
from tests.rows import each_row

if TYPE_CHECKING:
    from somewhere import Unimportable  # type: ignore[import-not-found]


class Struct(msgspec.Struct):
    to: str
    count: int = 1


class Model(pydantic.BaseModel):
    to: str
    count: int = 1


def served(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what the function returns when it is called through a payload."""
    handler = Handler("t", function, {})
    return handler.call(handler.decode(handler.encode_call(args, kwargs)), pulse.Context(job_id="j"))


class Opaque:
    pass


def _star(*args: int) -> None: ...


def _double_star(**kwargs: int) -> None: ...


def _two_documents(one: Struct, two: Model) -> None: ...


def _document_and_more(args: Struct, urgent: bool) -> None: ...


def _two_contexts(ctx: pulse.Context, other: pulse.Context) -> None: ...


def _positional(to: str, copies: int, /) -> None: ...


def _opaque(args: Opaque) -> None: ...


def _unknown_type(args: Unimportable) -> None: ...


class _Mailer:
    def send(self, to: str) -> str:
        return to


def _generator(args: Struct) -> Any:
    yield args


@each_row(
    "function, sentence",
    [
        (_star, r"takes \*args"),
        (_double_star, r"takes \*\*kwargs"),
        (_two_documents, "other parameters besides"),
        (_document_and_more, "other parameters besides"),
        (_two_contexts, "two contexts"),
        (_positional, "by position only"),
        (_opaque, "JSON cannot be read as"),
        (_unknown_type, "Unimportable"),
        (_generator, "generator"),
        (
            _Mailer.send,
            r"takes self, .*: p\.register\(topic, object\.method",
        ),
        ("not a function", "has to be a function"),
    ],
)
def test_signature_that_no_payload_serves_is_refused_at_registration(function: Any, sentence: str) -> None:
    with pytest.raises(pulse.InvalidHandler, match=sentence):
        pulse.Pulse().register("t", function)


def test_method_of_an_object_is_a_handler() -> None:
    assert served(_Mailer().send, "ada") == "ada"


def test_return_annotation_for_the_type_checker_only_is_no_obstacle() -> None:
    def handle(to: str) -> Unimportable:
        return to

    assert served(handle, "a") == "a"


def test_types_local_to_a_function_are_found() -> None:
    @dataclass
    class Local:
        to: str

    p = pulse.Pulse()

    @p.job("t")
    def handle(args: Local) -> str:
        return args.to

    assert handle(Local("a")) == "a"


def test_topic_is_served_once() -> None:
    p = pulse.Pulse()
    p.register("t", lambda: None)
    with pytest.raises(pulse.InvalidHandler, match="has a handler already"):
        p.register("t", lambda: None)


def test_topic_that_the_server_would_refuse_is_refused_where_it_is_written() -> None:
    for client in (pulse.Pulse(), pulse.SyncPulse(), pulse.Router(), pulse.SyncRouter()):
        with pytest.raises(pulse.InvalidArgument, match="'two words' is not allowed: use letters"):
            client.job("two words")(lambda: None)
        with pytest.raises(pulse.InvalidArgument, match="has 256 characters; 255 are allowed at the most"):
            client.job("a" * 256)(lambda: None)


def test_decorator_without_a_topic_is_an_error_with_an_example() -> None:
    with pytest.raises(pulse.InvalidHandler, match=r"write @p\.job"):
        pulse.Pulse().job(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match="needs a topic"):
        pulse.Pulse().register("", lambda: None)


async def test_job_is_still_the_function_it_was() -> None:
    p = pulse.Pulse()

    @p.job("t")
    async def greet(name: str) -> str:
        """Greet a person."""
        return f"hello {name}"

    assert await greet("you") == "hello you"
    assert (greet.topic, greet.__name__, greet.__doc__) == ("t", "greet", "Greet a person.")
    assert repr(greet) == "<Job 't'>"


def test_callables_of_other_kinds_are_handlers() -> None:
    class Sender:
        async def __call__(self, to: str) -> str:
            return to

        async def method(self, to: str) -> str:
            return to

    def plain(greeting: str, to: str) -> str:
        return greeting + to

    assert Handler("t", Sender(), {}).is_async
    assert Handler("t", Sender().method, {}).is_async
    partial = functools.partial(plain, "hi ")
    assert not Handler("t", partial, {}).is_async
    assert served(partial, to="you") == "hi you"


@each_row(
    "args, kwargs, sentence",
    [
        ((), {}, "needs to"),
        (("a", 1, 2), {}, "2 arguments by position, but 3"),
        (("a",), {"to": "b"}, "given to twice"),
        (("a",), {"cc": "b"}, "does not take cc"),
    ],
)
def test_enqueue_with_arguments_that_do_not_fit_is_refused(args: Any, kwargs: Any, sentence: str) -> None:
    def handle(to: str, copies: int = 1) -> None: ...

    with pytest.raises(pulse.InvalidArgument, match=sentence):
        served(handle, *args, **kwargs)


@each_row("client", [pulse.Pulse, pulse.SyncPulse])
@each_row("delay", [5, timedelta(seconds=5)])
def test_options_that_are_given_as_arguments_are_refused_with_their_place(client: Any, delay: Any) -> None:
    p = client("localhost:1")
    sentence = r"options come before the arguments, \.options\(delay=…\)\.enqueue\(…\)"

    @p.job("several")
    async def several(to: str, copies: int = 1) -> None: ...

    @p.job("document")
    async def document(letter: dict[str, str]) -> None: ...

    for job, argument in ((several, "you"), (document, {})):
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            _completed(job.enqueue(argument, delay=delay))


def _completed(call: Any) -> None:
    call.send(None)  # a blocking one has raised already


def test_payload_of_nothing_is_empty_and_bytes_are_sent_as_they_are() -> None:
    assert (encode(None), encode(b"\x00"), encode({"a": 1})) == (b"", b"\x00", b'{"a":1}')
    assert encode([Model(to="a")]) == b'[{"to":"a","count":1}]'
    assert (decode_json(b""), decode_json(b"[1]")) == (None, [1])
    with pytest.raises(pulse.InvalidArgument, match="not JSON"):
        decode_json(b"\xff")
    with pytest.raises(pulse.InvalidArgument, match="Opaque"):
        encode({"x": Opaque()})
