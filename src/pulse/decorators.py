"""How functions become handlers, and the result of `@p.job(…)`: callable, with a typed `enqueue`.

`job.s(…)` is a signature: `chain` and `group` are shorthands for workflows, made of them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from pulse.enqueues import EnqueueVerbs, JobItem, of_item
from pulse.errors import InvalidArgument, InvalidHandler
from pulse.handlers.context import Context
from pulse.handlers.handler import Handler, HandlerOptions, JobOptions, make_options
from pulse.handlers.registry import EnqueueMiddleware
from pulse.handlers.workflows import Node
from pulse.jobs.caller import Caller, blocks_in_handler_threads
from pulse.jobs.handles import JobHandle
from pulse.jobs.submissions import (
    OPTIONS,
    EnqueueOptions,
    ItemOptions,
    ManyOptions,
    check_known,
    check_values,
)
from pulse.messages import check_items

R = TypeVar("R", covariant=True)


class TakesJobs(Protocol):
    """A workflow that is being written."""

    def add(self, job: Any, /, *, after: Any = ()) -> Node[Any]: ...


class Pattern:
    """Jobs and their order: a signature, a chain or a group."""

    def then(self, *patterns: Pattern) -> Chain:
        """Return the chain of this and the patterns: each waits for all ends of the one before."""
        return chain(self, *patterns)

    def _add_to(self, draft: TakesJobs, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        """Add the jobs. Those at the start wait for `after`. Returns those at the end."""
        raise NotImplementedError

    def _topics(self) -> Iterator[str]:
        raise NotImplementedError


class Signature(Pattern, Generic[R]):
    """A handler with its arguments and options, as `job.s(…)` makes it. `R` is the type of its result."""

    def __init__(self, handler: Handler, payload: bytes, options: EnqueueOptions) -> None:
        self.topic = handler.topic
        self._handler = handler
        self._payload = payload
        self._options = options

    def _add_to(self, draft: TakesJobs, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        return [draft.add(self, after=after)]

    def _topics(self) -> Iterator[str]:
        yield self.topic

    def __repr__(self) -> str:
        return f"<Signature {self.topic!r}>"


class _Several(Pattern):
    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        if not patterns:
            raise InvalidArgument(f"A {self._word} needs a job at the least: give it signatures, job.s(…).")
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise InvalidArgument(
                    f"A {self._word} is made of signatures, job.s(…), chains and groups, not of {pattern!r}."
                )

    @property
    def _word(self) -> str:
        return type(self).__name__.lower()

    def _topics(self) -> Iterator[str]:
        for pattern in self._patterns:
            yield from pattern._topics()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._topics())}>"


class Chain(_Several):
    """Patterns that run one after the other."""

    def _add_to(self, draft: TakesJobs, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        ends = list(after)
        for pattern in self._patterns:
            ends = pattern._add_to(draft, ends)
        return ends


class Group(_Several):
    """Patterns that run beside each other."""

    def _add_to(self, draft: TakesJobs, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        return [node for pattern in self._patterns for node in pattern._add_to(draft, after)]


def chain(*patterns: Pattern) -> Chain:
    """Return jobs that run one after the other: `pulse.chain(fetch.s(url), parse.s(), store.s())`.

    `await p.start(…)` stores it. A job reads the result of the one before from `ctx.parents`.
    """
    return Chain(patterns)


def group(*patterns: Pattern | Iterable[Pattern]) -> Group:
    """Return jobs that run beside each other: `pulse.group(resize.s(i) for i in images).then(collage.s())`.

    It takes signatures, chains and groups, or one iterable of them.
    """
    if len(patterns) == 1 and not isinstance(patterns[0], Pattern) and isinstance(patterns[0], Iterable):
        return Group(list(patterns[0]))
    return Group(patterns)  # type: ignore[arg-type]  # it checks them


P = ParamSpec("P")
"""The parameters of `enqueue`: the handler's parameters without its context."""
C = ParamSpec("C")
"""The parameters of the function."""
A = TypeVar("A")
A1 = TypeVar("A1", contravariant=True)
A2 = TypeVar("A2", contravariant=True)
A3 = TypeVar("A3", contravariant=True)
K = TypeVar("K", bound=Context, contravariant=True)
"""The context that a handler takes: a Context or a SyncContext."""
V = TypeVar("V")
"""The awaited result of an async handler."""


class Registered(Generic[P, C, R]):
    """A registered handler: its `topic` and `function`. Call it like the function in unit tests."""

    def __init__(self, handler: Handler, options: EnqueueOptions | None = None) -> None:
        self._handler = handler
        self._options: EnqueueOptions = options or {}
        self.topic = handler.topic
        self.function: Callable[C, R] = handler.function
        functools.update_wrapper(self, handler.function, updated=())

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> R:
        """Call the function directly."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r}>"

    def with_options(self, item: Any = None, /, **options: Unpack[ItemOptions]) -> JobItem:
        """Return an item of `enqueue_many` with options: `job.with_options(item, priority=9)`."""
        return JobItem(item, **options)

    @overload
    def s(
        self: Registered[P, C, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> Signature[V]: ...
    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...
    def s(self, *args: Any, **kwargs: Any) -> Signature[Any]:
        """Return the signature of a job with these arguments: for `pulse.chain`, `pulse.group` and workflows.

        Its options come first: `job.options(priority=10).s(…)`.
        """
        return Signature(self._handler, self._handler.encode_call(args, kwargs, OPTIONS), self._options)

    def _added(self, options: EnqueueOptions) -> EnqueueOptions:
        """Return its options with these. Raises InvalidArgument for an unknown or wrong option."""
        check_known("An enqueue", options, OPTIONS)
        check_values(options)
        return {**self._options, **options}

    def _encode_many(self, items: Iterable[Any]) -> tuple[list[bytes | JobItem], ManyOptions]:
        check_items(items)
        if self._options.get("key") or self._options.get("job_id"):
            raise InvalidArgument("A key or job_id belongs to one job: it cannot be given to enqueue_many.")
        options = {name: value for name, value in self._options.items() if name not in ("key", "job_id")}
        encoded: list[bytes | JobItem] = []
        for item in items:
            try:
                encoded.append(self._encode_item(item))
            except InvalidArgument as error:
                raise of_item(len(encoded), error) from error.__cause__
        return encoded, cast("ManyOptions", options)

    def _encode_item(self, item: Any) -> bytes | JobItem:
        if isinstance(item, JobItem):
            return JobItem(self._handler.encode_item(item.args), **item.options)
        return self._handler.encode_item(item)


class Job(Registered[P, C, R]):
    """A handler of a `Pulse`. `await job.enqueue(…)` takes the handler's parameters without the context."""

    def __init__(self, client: EnqueueVerbs, handler: Handler, options: EnqueueOptions | None = None) -> None:
        super().__init__(handler, options)
        self._client = client

    @property
    def _caller(self) -> Caller:
        return self._client._caller

    @overload
    async def enqueue(
        self: Job[P, C, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V]: ...
    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
    @blocks_in_handler_threads
    async def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Store a job that will call the handler with these arguments. In a `def` handler this blocks."""
        payload = self._handler.encode_call(args, kwargs, OPTIONS)
        return await self._client.enqueue(self.topic, payload, **self._options)

    @overload
    async def enqueue_many(
        self: Job[P, C, Coroutine[Any, Any, V]], items: Iterable[Any]
    ) -> list[JobHandle[V]]: ...
    @overload
    async def enqueue_many(self, items: Iterable[Any]) -> list[JobHandle[R]]: ...
    @blocks_in_handler_threads
    async def enqueue_many(self, items: Iterable[Any]) -> list[JobHandle[Any]]:
        """Store a job for each item: a document, or a mapping of keyword parameters."""
        payloads, options = self._encode_many(items)
        return await self._client.enqueue_many(self.topic, payloads, **options)

    @overload
    def handle(self: Job[P, C, Coroutine[Any, Any, V]], job_id: str) -> JobHandle[V]: ...
    @overload
    def handle(self, job_id: str) -> JobHandle[R]: ...
    def handle(self, job_id: str) -> JobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. Makes no call."""
        return self._stored(job_id)

    def _stored(self, job_id: str, duplicate: bool = False, replaced: bool = False) -> JobHandle[Any]:
        return self._client._handles.made(job_id, self.topic, duplicate, replaced)

    @property
    def _async_middleware(self) -> list[EnqueueMiddleware]:
        """Of enqueues."""
        return self._client._enqueue_middleware

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return this job with options: `await job.options(priority=10).enqueue(…)`.

        `timeout` bounds the call that stores the job, not its attempts.
        """
        return type(self)(self._client, self._handler, self._added(options))


class ContextAlone(Protocol[R, K]):
    """A handler with `*, ctx: Context` and no parameter by position."""

    def __call__(self, *, ctx: K) -> R: ...


class ContextAfterOne(Protocol[A1, R, K]):
    """The same with one."""

    def __call__(self, one: A1, /, *, ctx: K) -> R: ...


class ContextAfterTwo(Protocol[A1, A2, R, K]):
    """The same with two."""

    def __call__(self, one: A1, two: A2, /, *, ctx: K) -> R: ...


class ContextAfterThree(Protocol[A1, A2, A3, R, K]):
    """The same with three."""

    def __call__(self, one: A1, two: A2, three: A3, /, *, ctx: K) -> R: ...


if TYPE_CHECKING:

    class JobWithContextByName(Job[..., ..., R], Generic[R, A1, A2, A3]):
        """A type checker cannot take a keyword out of a ParamSpec. It checks the arguments by position.

        It does not know defaults or arguments by name; the SDK checks them.
        """

        @overload
        async def enqueue(
            self: JobWithContextByName[Coroutine[Any, Any, V], A1, A2, A3],
            one: A1 = ...,
            two: A2 = ...,
            three: A3 = ...,
            /,
            **kwargs: Any,
        ) -> JobHandle[V]: ...
        @overload
        async def enqueue(
            self, one: A1 = ..., two: A2 = ..., three: A3 = ..., /, **kwargs: Any
        ) -> JobHandle[R]: ...
        async def enqueue(self, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...  # type: ignore[misc]  # it does


class JobDecorator:
    """What `p.job("topic")` returns. The types of `enqueue` leave out the context.

    A type checker recognizes the context as the first parameter, or as the second after one document. With
    `*, ctx: Context` it checks the first three arguments of `enqueue` by position; the SDK checks all.
    """

    def __init__(self, register: Callable[[Callable[..., Any]], Job[..., ..., Any]]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[A, K], R], /) -> Job[[A], [A, K], R]: ...
    # A function with two contexts would fit this one and those below. It is refused.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[K, P], R], /
    ) -> Job[P, Concatenate[K, P], R]: ...
    @overload
    def __call__(
        self, function: ContextAfterThree[A1, A2, A3, R, K], /
    ) -> JobWithContextByName[R, A1, A2, A3]: ...
    @overload
    def __call__(
        self, function: ContextAfterTwo[A1, A2, R, K], /
    ) -> JobWithContextByName[R, A1, A2, Never]: ...
    @overload
    def __call__(
        self, function: ContextAfterOne[A1, R, K], /
    ) -> JobWithContextByName[R, A1, Never, Never]: ...
    @overload
    def __call__(self, function: ContextAlone[R, K], /) -> JobWithContextByName[R, Never, Never, Never]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Job[..., ..., Any]:
        return self._register(function)


class Registering:
    """Registration of handlers, for `Pulse` and `Router`."""

    def job(self, topic: str, /, **options: Unpack[JobOptions]) -> JobDecorator:
        """Register the decorated function as the handler of a topic. It becomes a `Job` that can enqueue.

        The options set how its jobs are retried, how long they may run, and where: see
        docs/handlers.md.
        """
        check_is_topic(topic)
        checked = make_options(options)
        return JobDecorator(
            lambda function: self._register(topic, function, sys._getframe(2).f_locals, checked)
        )

    def register(
        self, topic: str, function: Callable[..., Any], /, **options: Unpack[JobOptions]
    ) -> Job[..., ..., Any]:
        """Register a function as the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals, make_options(options))

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> Job[..., ..., Any]:
        raise NotImplementedError


def check_is_topic(topic: object) -> None:
    """Raise InvalidHandler for `@p.job` without its parentheses."""
    if not isinstance(topic, str):
        raise InvalidHandler('@p.job needs a topic: write @p.job("send-email").')
