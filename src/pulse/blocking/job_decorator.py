"""How functions become handlers of a `SyncPulse` or `SyncRouter`, and the result of its `@p.job(…)`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, Self, Unpack, cast, overload

from pulse.blocking.handles import SyncJobHandle
from pulse.blocking.verbs import SyncVerbs
from pulse.client import RoutedHandlers
from pulse.decorators import (
    A1,
    A2,
    A3,
    A,
    C,
    ContextAfterOne,
    ContextAfterThree,
    ContextAfterTwo,
    ContextAlone,
    K,
    P,
    R,
    Registered,
    V,
    check_is_topic,
)
from pulse.handlers.handler import Handler, HandlerOptions, JobOptions, make_options
from pulse.handlers.registry import EnqueueMiddleware
from pulse.jobs.submissions import OPTIONS, EnqueueOptions


class SyncJob(Registered[P, C, R]):
    """A handler of a `SyncPulse`. `job.enqueue(…)` takes the handler's parameters without the context."""

    def __init__(self, client: SyncVerbs, handler: Handler, options: EnqueueOptions | None = None) -> None:
        super().__init__(handler, options)
        self._client = client

    @overload
    def enqueue(
        self: SyncJob[P, C, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> SyncJobHandle[V]: ...
    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]:
        """Store a job that will call the handler with these arguments."""
        payload = self._handler.encode_call(args, kwargs, OPTIONS)
        return self._client.enqueue(self.topic, payload, **self._options)

    @overload
    def enqueue_many(
        self: SyncJob[P, C, Coroutine[Any, Any, V]], items: Iterable[Any]
    ) -> list[SyncJobHandle[V]]: ...
    @overload
    def enqueue_many(self, items: Iterable[Any]) -> list[SyncJobHandle[R]]: ...
    def enqueue_many(self, items: Iterable[Any]) -> list[SyncJobHandle[Any]]:
        """Store a job for each item: a document, or a mapping of keyword parameters."""
        payloads, options = self._encode_many(items)
        return self._client.enqueue_many(self.topic, payloads, **options)

    @overload
    def handle(self: SyncJob[P, C, Coroutine[Any, Any, V]], job_id: str) -> SyncJobHandle[V]: ...
    @overload
    def handle(self, job_id: str) -> SyncJobHandle[R]: ...
    def handle(self, job_id: str) -> SyncJobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. Makes no call."""
        return self._stored(job_id)

    def _stored(self, job_id: str, duplicate: bool = False, replaced: bool = False) -> SyncJobHandle[Any]:
        client = self._client
        return client._handles.of(client._async._handles.made(job_id, self.topic, duplicate, replaced))

    @property
    def _async_middleware(self) -> list[EnqueueMiddleware]:
        """Of enqueues, in the event loop of the client. What runs in the thread of the caller is apart."""
        return self._client._async._enqueue_middleware

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return this job with options: `job.options(priority=10).enqueue(…)`.

        `timeout` bounds the call that stores the job, not its attempts.
        """
        return type(self)(self._client, self._handler, self._added(options))


if TYPE_CHECKING:

    class SyncJobWithContextByName(SyncJob[..., ..., R], Generic[R, A1, A2, A3]):
        """See `JobWithContextByName`."""

        @overload
        def enqueue(
            self: SyncJobWithContextByName[Coroutine[Any, Any, V], A1, A2, A3],
            one: A1 = ...,
            two: A2 = ...,
            three: A3 = ...,
            /,
            **kwargs: Any,
        ) -> SyncJobHandle[V]: ...
        @overload
        def enqueue(
            self, one: A1 = ..., two: A2 = ..., three: A3 = ..., /, **kwargs: Any
        ) -> SyncJobHandle[R]: ...
        def enqueue(self, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]: ...  # type: ignore[misc]  # it does


class SyncJobDecorator:
    """What `p.job("topic")` returns for a `SyncPulse`."""

    def __init__(self, register: Callable[[Callable[..., Any]], SyncJob[..., ..., Any]]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[A, K], R], /) -> SyncJob[[A], [A, K], R]: ...
    @overload  # the overlap as in JobDecorator
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[K, P], R], /
    ) -> SyncJob[P, Concatenate[K, P], R]: ...
    @overload
    def __call__(
        self, function: ContextAfterThree[A1, A2, A3, R, K], /
    ) -> SyncJobWithContextByName[R, A1, A2, A3]: ...
    @overload
    def __call__(
        self, function: ContextAfterTwo[A1, A2, R, K], /
    ) -> SyncJobWithContextByName[R, A1, A2, Never]: ...
    @overload
    def __call__(
        self, function: ContextAfterOne[A1, R, K], /
    ) -> SyncJobWithContextByName[R, A1, Never, Never]: ...
    @overload
    def __call__(
        self, function: ContextAlone[R, K], /
    ) -> SyncJobWithContextByName[R, Never, Never, Never]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncJob[P, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> SyncJob[..., ..., Any]:
        return self._register(function)


class SyncRegistering:
    """Registration of handlers, for `SyncPulse` and `SyncRouter`."""

    def job(self, topic: str, /, **options: Unpack[JobOptions]) -> SyncJobDecorator:
        """Register the decorated function as the handler of a topic. It becomes a `SyncJob`."""
        check_is_topic(topic)
        checked = make_options(options)
        return SyncJobDecorator(
            lambda function: self._register(topic, function, sys._getframe(2).f_locals, checked)
        )

    def register(
        self, topic: str, function: Callable[..., Any], /, **options: Unpack[JobOptions]
    ) -> SyncJob[..., ..., Any]:
        """Register a function as the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals, make_options(options))

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        raise NotImplementedError


class SyncRouter(SyncRegistering, RoutedHandlers):
    """Collects handlers and schedules without a client. `p.include(router)` adds them to a `SyncPulse`."""

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        handler = self._collect(topic, function, names, options)
        return SyncJob(cast("SyncVerbs", self._target), handler)
