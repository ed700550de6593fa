"""The handlers of one client, by topic, with their middleware and resources, and middleware around enqueue.

Middleware runs where the handler runs, in the order of registration. The chain is composed once for each
handler. A handler without middleware pays nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias, TypeVar

from pulse.errors import InvalidArgument, InvalidHandler, InvalidMiddleware
from pulse.handlers.context import NO_STATE, Context, Hold, Opened, Resource, State, steps_of, type_name
from pulse.handlers.handler import (
    NO_OPTIONS,
    Call,
    Handler,
    HandlerOptions,
    JobOptions,
    full_name,
    place_of,
    qualified_name,
)
from pulse.handlers.signatures import is_coroutine_function, takes
from pulse.handlers.step_calls import AT_THE_START
from pulse.jobs.submissions import check_priority
from pulse.v1 import pulse_pb2 as pb


@dataclass(slots=True)
class JobCall:
    """A call of a handler, as its middleware sees it."""

    context: Context
    arguments: Any
    """The document that the handler takes, or a dict of its parameters by name. May be replaced."""
    function: Callable[..., Any]
    """The handler's function. `call_next()` calls it."""
    is_skipped: bool = False
    """Whether `skip` was called."""

    def skip(self) -> None:
        """Complete the job without its handler. Return after it, without calling `call_next()`."""
        self.is_skipped = True


class CallNext(Protocol):
    """Runs the next middleware, at last the handler. Returns the handler's result, or raises."""

    def __call__(self) -> Any: ...


Middleware: TypeAlias = Callable[[JobCall, CallNext], Any]
"""`async def (call, call_next)`, or for sync handlers a plain function of the same."""

_AsyncRun = Callable[[JobCall], Coroutine[Any, Any, Any]]
_SyncRun = Callable[[JobCall], Any]


def check_middleware(middleware: object) -> None:
    """Raise InvalidMiddleware if this cannot be middleware: every job would fail."""
    if not callable(middleware):
        raise InvalidMiddleware(
            f"Middleware has to be a function of (call, call_next), but {middleware!r} was given."
        )
    if inspect.isclass(middleware):
        raise InvalidMiddleware(
            f"Middleware is a function of (call, call_next), but {qualified_name(middleware)} is a class. "
            "Give an object of it."
        )
    if inspect.isasyncgenfunction(middleware) or inspect.isgeneratorfunction(middleware):
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} has a `yield`: write `await call_next()` instead."
        )
    if not takes(middleware, None, None):
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} cannot be called with (call, call_next)."
        )


def surrounded(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    """Return the call inside this middleware, the first one outermost.

    Raises InvalidMiddleware for a plain function around an async handler, which it could not wait for.
    """
    if not chain:
        return call
    if handler.is_async:
        return _around_async(handler, call, chain)
    return _around_sync(handler, call, chain)


# ---------------------------------------------------------------- async handlers, in the event loop


def _around_async(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    async def innermost(job: JobCall) -> Any:
        return await call(job.arguments, job.context)

    run: _AsyncRun = innermost
    for middleware in reversed(chain):
        if not is_coroutine_function(middleware):
            raise InvalidMiddleware(
                f"The middleware {qualified_name(middleware)} is a plain function, and the handler for "
                f"{handler.topic!r} is async: make the middleware `async def`. It then works around both."
            )
        run = _async_layer(middleware, run)
    function = handler.function
    return lambda arguments, context: run(JobCall(context, arguments, function))


def _async_layer(middleware: Middleware, inner: _AsyncRun) -> _AsyncRun:
    async def layer(job: JobCall) -> Any:
        following = _AsyncNext(inner, job)
        await middleware(job, following)
        return following.outcome(middleware)

    return layer


# ---------------------------------------------------------------- sync handlers, in a thread


def _around_sync(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    def innermost(job: JobCall) -> Any:
        return call(job.arguments, job.context)

    run: _SyncRun = innermost
    for middleware in reversed(chain):
        layer = _stepped_layer if is_coroutine_function(middleware) else _sync_layer
        run = layer(middleware, run)
    function = handler.function
    return lambda arguments, context: run(JobCall(context, arguments, function))


def _sync_layer(middleware: Middleware, inner: _SyncRun) -> _SyncRun:
    def layer(job: JobCall) -> Any:
        following = _SyncNext(inner, job)
        middleware(job, following)
        return following.outcome(middleware)

    return layer


def _stepped_layer(middleware: Middleware, inner: _SyncRun) -> _SyncRun:
    """Run async middleware in a thread, where no event loop runs: all it may await is `call_next()`."""

    def layer(job: JobCall) -> Any:
        following = _SteppedNext(inner, job)
        coroutine = middleware(job, following)
        is_done = False
        try:
            coroutine.send(None)
        except StopIteration:
            is_done = True
        except RuntimeError as error:
            if str(error) == "no running event loop" and error is not following.raised:
                raise _awaits_in_thread(middleware, job) from error
            raise
        if is_done:
            return following.outcome(middleware)
        coroutine.close()
        raise _awaits_in_thread(middleware, job)

    return layer


def _awaits_in_thread(middleware: Middleware, job: JobCall) -> InvalidMiddleware:
    return InvalidMiddleware(
        f"The middleware {qualified_name(middleware)} awaits more than call_next() around the handler for "
        f"{job.context.topic!r}, which runs in a thread without an event loop. Make the handler `async def`, "
        "or use blocking calls in the middleware."
    )


# ---------------------------------------------------------------- call_next


class _Next:
    """What `call_next` is: it records whether it was called, and whether the handler is done."""

    __slots__ = ("_inner", "_is_over", "_is_started", "_job", "_mark", "_result")

    def __init__(self, inner: Callable[[JobCall], Any], job: JobCall) -> None:
        self._inner = inner
        self._job = job
        self._is_started = self._is_over = False
        self._mark = AT_THE_START
        self._result: Any = None

    def _begin(self) -> None:
        """Record the call. A repeated call goes through the stored steps again."""
        steps = steps_of(self._job.context)
        if steps is not None:
            if self._is_started:
                steps.rewind(self._mark)
            else:
                self._mark = steps.mark()
        self._is_started, self._is_over = True, False

    def outcome(self, middleware: Middleware) -> Any:
        """Return the handler's result. Raises if the middleware may have lost the outcome."""
        if self._is_over or (self._job.is_skipped and not self._is_started):
            return self._result
        name = qualified_name(middleware)
        if self._is_started:
            raise InvalidMiddleware(
                f"The middleware {name} returned before the handler was done: write `await call_next()`."
            )
        raise InvalidMiddleware(
            f"The middleware {name} returned without running the handler. Call `call_next()` and, if it is "
            "async, await it; raise an error; or call `call.skip()` to complete the job without its handler."
        )


class _AsyncNext(_Next):
    __slots__ = ()

    async def __call__(self) -> Any:
        self._begin()
        try:
            self._result = await self._inner(self._job)
        finally:
            self._is_over = True
        return self._result


class _SyncNext(_Next):
    __slots__ = ()

    def __call__(self) -> Any:
        self._begin()
        try:
            self._result = self._inner(self._job)
        finally:
            self._is_over = True
        return self._result


class _SteppedNext(_SyncNext):
    __slots__ = ("raised",)

    raised: BaseException | None
    """The last error of the handler, or of middleware around it."""

    def __init__(self, inner: Callable[[JobCall], Any], job: JobCall) -> None:
        super().__init__(inner, job)
        self.raised = None

    async def __call__(self) -> Any:
        try:
            return super().__call__()
        except BaseException as error:
            self.raised = error
            raise


class Surroundings:
    """The middleware and the resources of one client, in the order of registration."""

    def __init__(self) -> None:
        self._middleware: list[Middleware] = []
        self._resources: list[Resource] = []
        self._openings = 0

    @property
    def has_resources(self) -> bool:
        return bool(self._resources)

    @property
    def is_empty(self) -> bool:
        """True if there is neither middleware nor a resource."""
        return not (self._middleware or self._resources)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add middleware inside the middleware added before. Raises InvalidMiddleware."""
        check_middleware(middleware)
        self._check_early(f"The middleware {qualified_name(middleware)}")
        for at, known in enumerate(self._middleware):
            if is_redefined(known, middleware):
                self._middleware[at] = middleware
                return
        self._middleware.append(middleware)

    def add_resource(self, factory: Any, names: Mapping[str, Any]) -> None:
        """Add a resource. Raises InvalidArgument if it cannot be one, or its name or type is taken."""
        resource = Resource(factory, names)
        self._check_early(f"The resource {resource.name}")
        for at, other in enumerate(self._resources):
            if is_redefined(other.factory, factory):
                self._resources[at] = resource
                return
            if other.name == resource.name or (
                other.provides is not None and other.provides == resource.provides
            ):
                raise InvalidHandler(
                    f"The resources {other.name} and {resource.name} have the same name or type, so that a "
                    "handler could get either. Give the second a name and a type of its own."
                )
        self._resources.append(resource)

    def _check_early(self, what: str) -> None:
        if self._openings:
            raise InvalidHandler(f"{what} comes too late: register it before run().")

    @asynccontextmanager
    async def opened(self, handlers: Collection[Handler]) -> AsyncIterator[None]:
        """Open the resources and put the handlers into these surroundings, for as long as the block runs.

        Raises ResourceFailed if a resource cannot be opened or closed, and InvalidHandler for a
        handler that takes an unknown resource. Runs once for each process: a child opens its own
        resources.
        """
        resources = Opened(list(self._resources))
        self._openings += 1
        try:
            self._surround(handlers, await resources.open())
            yield
        finally:
            self._openings -= 1
            for handler in handlers:
                handler.state, handler.call = NO_STATE, handler.call_with({})
            await resources.close()

    def _surround(self, handlers: Collection[Handler], state: State) -> None:
        for handler in handlers:
            given: dict[str, Any] = {}
            for parameter in handler.resources:
                if parameter.annotation not in state:
                    raise InvalidHandler(
                        f"The handler for {handler.topic!r} takes the resource {parameter.name}, but there "
                        f"is none of the type {type_name(parameter.annotation)}. {self._remedy()}"
                    )
                given[parameter.name] = state[parameter.annotation]
            handler.state = state
            handler.call = surrounded(handler, handler.call_with(given), self._middleware)

    def _remedy(self) -> str:
        for resource in self._resources:
            if resource.provides is None:
                return (
                    f"The type of {resource.name} is not known: annotate what it returns, such as "
                    "-> Iterator[Database]."
                )
        return "Register one with @p.resource."


def is_redefined(known: object, function: object) -> bool:
    """True if both are functions of one name and module: a cell of a notebook ran again."""
    if not (inspect.isroutine(known) and inspect.isroutine(function)):
        return False
    name = full_name(known)
    return (
        name == full_name(function) and "<" not in name
    )  # <lambda> and <locals> name more than one function


logger = logging.getLogger("pulse")

# Those of pulse_server/base/bounds.py.
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_LONGEST_TOPIC = 255


def is_topic(name: str) -> bool:
    """Return whether the server accepts the name as a topic."""
    return len(name) <= _LONGEST_TOPIC and _TOPIC.fullmatch(name) is not None


def check_topic(topic: str) -> None:
    """Raise InvalidArgument for a topic that the server would refuse."""
    if len(topic) > _LONGEST_TOPIC:
        raise InvalidArgument(f"topic has {len(topic)} characters; {_LONGEST_TOPIC} are allowed at the most.")
    if not is_topic(topic):
        raise InvalidArgument(
            f"topic {topic!r} is not allowed: use letters, digits and . _ - : / and start with a letter or "
            "digit."
        )


def matching_topics(pattern: str, topics: Collection[str]) -> list[str]:
    """Return the topics that a name or a pattern such as `mail.*` stands for."""
    # No topic has an asterisk in its name: the server refuses it.
    if isinstance(pattern, str) and "*" in pattern:
        return [topic for topic in topics if fnmatchcase(topic, pattern)]
    return [pattern] if pattern in topics else []


class Registry:
    """The handlers of one client, by topic."""

    def __init__(self, retry_undecodable: bool = False, hold: Hold | None = None) -> None:
        self._retry_undecodable = retry_undecodable
        self.defaults: JobOptions = {}
        """The options of handlers that are registered without their own."""
        self.hold = hold
        """Holds a topic for a handler."""
        self._handlers: dict[str, Handler] = {}
        self.get = self._handlers.get
        """Return the handler that serves the topic, or None."""
        self._is_serving = False
        self.surroundings = Surroundings()
        """The middleware and the resources of the handlers."""

    def register(
        self,
        topic: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: HandlerOptions = NO_OPTIONS,
    ) -> Handler:
        """Add a handler. Raises InvalidHandler if the topic has one, or the function cannot be one."""
        if not isinstance(topic, str) or not topic:
            raise InvalidArgument('A handler needs a topic: write @p.job("send-email").')
        check_topic(topic)
        self.check_free(topic, function)
        handler = Handler(topic, function, names, options.over(self.defaults))
        handler.retry_undecodable = self._retry_undecodable
        handler.hold = self.hold
        self._handlers[topic] = handler
        return handler

    def check_free(self, topic: str, function: Callable[..., Any]) -> None:
        """Raise InvalidHandler unless the function may become the handler of the topic.

        A function replaces an earlier function of the same name in the same module: a notebook
        defines it again when a cell runs again.
        """
        if self._is_serving:
            raise InvalidHandler(f"The handler for {topic!r} comes too late: register it before run().")
        known = self._handlers.get(topic)
        if known is None:
            return
        name = full_name(known.function)
        if name != full_name(function) or "<" in name:  # <lambda> and <locals> name more than one function
            raise InvalidHandler(
                f"{topic!r} has a handler already, {name}. "
                "One function serves a topic; choose another topic for the second."
            )
        before, after = place_of(known.function), place_of(function)
        if before is not None and after is not None and before[0] == after[0] and before[1] != after[1]:
            logger.warning(
                "The handler of %r at line %d of %s is replaced by another of the same name at line %d.",
                topic,
                before[1],
                before[0],
                after[1],
            )

    def serve(self, is_serving: bool) -> None:
        """Set whether a worker runs. While one runs, no handler can be added."""
        self._is_serving = is_serving

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def select(self, topics: Iterable[str] | None) -> list[str]:
        """Return the topics, or all for None. A pattern such as `mail.*` stands for all that match.

        Raises InvalidHandler for a topic without a handler, and for a pattern that matches none.
        """
        if topics is None:
            return list(self._handlers)
        if isinstance(topics, str):
            raise InvalidArgument(f"topics has to be a list of topics, not the string {topics!r}.")
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            raise InvalidArgument(
                "topics is empty: name some, or leave it out to serve all that have a handler."
            )
        matches = {topic: matching_topics(topic, self._handlers) for topic in wanted}
        if unknown := [topic for topic, found in matches.items() if not found]:
            known = ", ".join(self._handlers) or "none"
            raise InvalidHandler(
                f"There is no handler for {', '.join(map(str, unknown))}; there are: {known}."
            )
        return list(dict.fromkeys(topic for found in matches.values() for topic in found))

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


Answer = TypeVar("Answer")


@dataclass(slots=True)
class Enqueue:
    """An enqueue that is about to be sent: one job, or all of an `enqueue_many`."""

    topic: str
    payloads: Sequence[bytes]
    """The encoded arguments, one for each job."""
    metadata: dict[str, str]
    """The metadata of all jobs. Entries may be added, changed and removed."""
    priority: int
    """The priority of all jobs. May be changed."""


EnqueueMiddleware: TypeAlias = Callable[[Enqueue, Callable[[], Any]], Any]
"""`async def (enqueue, call_next)`; a plain function of the same for a `SyncPulse`."""


def check_async(middleware: object) -> None:
    """Raise InvalidMiddleware unless this can surround the enqueues of a `Pulse`."""
    if not callable(middleware) or not is_coroutine_function(middleware):
        raise InvalidMiddleware(
            f"Middleware of enqueue has to be `async def (enqueue, call_next)`, not {middleware!r}. "
            "Plain functions are for a SyncPulse."
        )


async def surround(
    chain: Sequence[EnqueueMiddleware],
    requests: Sequence[pb.SubmitJobRequest],
    payloads: Sequence[bytes],
    send: Callable[[], Coroutine[Any, Any, Answer]],
) -> Answer:
    """Send the jobs through the middleware. Returns the answer of the server, or raises.

    All requests have the metadata and the priority of the first.
    """
    first = requests[0]
    enqueue = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)
    given = replace(enqueue, metadata=dict(first.metadata))

    async def apply_and_send() -> Answer:
        nonlocal given
        changes_of(given, enqueue).apply_to_requests(requests)
        given = replace(enqueue, metadata=dict(enqueue.metadata))  # for a further call
        return await send()

    return await _through(chain, enqueue, apply_and_send)


async def surround_topics(
    chain: Sequence[EnqueueMiddleware],
    topics: Sequence[Sequence[pb.SubmitJobRequest]],
    send: Callable[[], Coroutine[Any, Any, Answer]],
) -> Answer:
    """Send the jobs of several topics together: through the middleware once for each topic."""
    if not chain or not topics:
        return await send()
    requests, *others = topics
    payloads = [request.payload for request in requests]

    async def send_others() -> Answer:
        # In a task, which has a stack of its own: a hundred topics would reach the recursion limit.
        return await asyncio.create_task(surround_topics(chain, others, send))

    return await surround(chain, requests, payloads, send_others if others else send)


async def _through(
    chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Coroutine[Any, Any, Answer]]
) -> Answer:
    if not chain:
        return await send()
    answers: list[Answer] = []

    async def call_next() -> Answer:
        answers.append(await _through(chain[1:], enqueue, send))
        return answers[-1]

    await chain[0](enqueue, call_next)
    return answered(answers, chain[0])


def answered(answers: list[Answer], middleware: EnqueueMiddleware) -> Answer:
    """Return the answer of the server, whatever the middleware returned. Raises if there is none."""
    if not answers:
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} returned, and the jobs are not known to be stored. "
            "Call `call_next()` and, if it is async, await it; raise an error to refuse the jobs."
        )
    return answers[-1]


@dataclass(frozen=True, slots=True)
class Changes:
    """What middleware changed. The rest stays: items of an `enqueue_many` may have values of their own."""

    removed: frozenset[str]
    added: dict[str, str]
    priority: int | None

    def apply_to_requests(self, requests: Sequence[pb.SubmitJobRequest]) -> None:
        """Change the requests."""
        for request in requests:
            for key in self.removed & request.metadata.keys():
                del request.metadata[key]
            for key, value in self.added.items():
                request.metadata[key] = value
            if self.priority is not None:
                request.priority = self.priority

    def apply_to(self, enqueue: Enqueue) -> None:
        """Change the enqueue in the same way."""
        for key in self.removed:
            enqueue.metadata.pop(key, None)
        enqueue.metadata.update(self.added)
        if self.priority is not None:
            enqueue.priority = self.priority


def changes_of(given: Enqueue, enqueue: Enqueue) -> Changes:
    """Return the changes of the middleware. Raises InvalidArgument for unusable values."""
    before, after, priority = given.metadata, enqueue.metadata, enqueue.priority
    if not isinstance(after, dict):
        raise InvalidArgument(
            f"Middleware set the metadata of the jobs to {after!r}: it has to be a dictionary."
        )
    added = {key: value for key, value in after.items() if before.get(key) != value}
    for key, value in added.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidArgument(
                "Middleware set metadata that cannot be sent: it maps strings to strings, but "
                f"{key!r} has {value!r}."
            )
    try:
        check_priority(priority)
    except InvalidArgument as error:
        raise InvalidArgument(f"Middleware set a priority that cannot be sent: {error.message}") from None
    return Changes(
        removed=frozenset(before.keys() - after.keys()),
        added=added,
        priority=priority if priority != given.priority else None,
    )


M = TypeVar("M", bound=Middleware)
E = TypeVar("E", bound=EnqueueMiddleware)
F = TypeVar("F", bound=Callable[..., Any])


class AroundVerbs:
    """The verbs of a `Pulse` that add code around handlers and enqueues."""

    _registry: Registry
    _enqueue_middleware: list[EnqueueMiddleware]

    def middleware(self, function: M, /) -> M:
        """Run this function around every handler: `async def (call, call_next)`. For use as a decorator.

        It runs where the handler runs: in the event loop, in the thread of a sync handler, or in the child
        process. The first one registered is the outermost. An error that it raises is the outcome
        of the attempt; an error that it suppresses makes the job a success. A plain function serves
        sync handlers only. `call_next()` has to run, unless the middleware raises or calls
        `call.skip()`.
        """
        self._registry.surroundings.add_middleware(function)
        return function

    def enqueue_middleware(self, function: E, /) -> E:
        """Run this function around every enqueue: `async def (enqueue, call_next)`. For use as a decorator.

        It can add metadata, change the priority, or raise to refuse the jobs. The first one registered is
        the outermost. Jobs that schedules fire are made by the server and do not pass it.
        """
        check_async(function)
        self._enqueue_middleware.append(function)
        return function

    def resource(self, factory: F, /) -> F:
        """Open this once for each worker process, before its first job. For use as a decorator.

        `factory` is a function that yields the resource, sync or async, or returns a context manager, or is
        the class of one. Code after the `yield` closes it, after the last handler. A handler takes it in a
        parameter of its type, `db: Database = pulse.INJECTED`, or reads `ctx.state[Database]`. Its own
        parameters are resources that were registered before.
        """
        self._registry.surroundings.add_resource(factory, sys._getframe(1).f_locals)
        return factory
