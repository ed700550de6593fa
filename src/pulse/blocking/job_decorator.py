"""The result of `@p.job(…)` of a `SyncPulse`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Self, Unpack, overload

from pulse.blocking.verbs import SyncVerbs
from pulse.client.job_decorator import A, C, P, R, Registered, WithContextByName
from pulse.client.options import EnqueueOptions
from pulse.handlers.context import Context
from pulse.handlers.handler import Handler
from pulse.job_handle import JobHandle


class SyncJob(Registered[P, C, R]):
    """A handler of a `SyncPulse`. `job.enqueue(…)` takes the handler's parameters without the context."""

    def __init__(self, client: SyncVerbs, handler: Handler, options: EnqueueOptions | None = None) -> None:
        super().__init__(handler, options)
        self._client = client

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Store a job that will call the handler with these arguments."""
        payload = self._handler.encode_call(args, kwargs)
        return self._client.enqueue(self.topic, payload, **self._options)

    def enqueue_many(self, items: Iterable[Any]) -> list[JobHandle]:
        """Store a job for each item: a document, or a mapping of keyword parameters."""
        payloads, options = self._encode_many(items)
        return self._client.enqueue_many(self.topic, payloads, **options)

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return this job with options: `job.options(priority=10).enqueue(…)`."""
        return type(self)(self._client, self._handler, {**self._options, **options})


class SyncJobDecorator:
    """What `p.job("topic")` returns for a `SyncPulse`."""

    def __init__(self, register: Callable[[Callable[..., Any]], SyncJob[..., ..., Any]]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[A, Context], R], /) -> SyncJob[[A], [A, Context], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> SyncJob[P, Concatenate[Context, P], R]: ...
    @overload
    def __call__(self, function: WithContextByName[R], /) -> SyncJob[..., ..., R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncJob[P, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> SyncJob[..., ..., Any]:
        return self._register(function)
