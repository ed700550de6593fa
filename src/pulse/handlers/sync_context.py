"""The context of `def` handlers, whose verbs block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from pulse.handlers.context import Context

if TYPE_CHECKING:
    from pulse.handlers.workflows import Nodes, Parents, RunningWorkflow
    from pulse.models.workflows import Node, Parent, When

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


if TYPE_CHECKING:

    class SyncParents(Parents):
        """The jobs that a running job waited for, in a `def` handler."""

        def __getitem__(self, name: str) -> Parent: ...  # type: ignore[override]

    class SyncRunningWorkflow(RunningWorkflow):
        """The workflow of a running job, in a `def` handler."""

        def add(  # type: ignore[override]
            self,
            job: Any,
            /,
            *args: Any,
            name: str | None = None,
            after: Nodes = (),
            before: Nodes = (),
            when: When = "succeeded",
            **kwargs: Any,
        ) -> Node[Any]: ...


class SyncContext(Context):
    """The context of a `def` handler: a `Context` whose verbs, from `step` to `hold`, block.

    The verbs return values; the verbs of a `Context` are awaited. Every `def` handler receives this
    context. The annotation is for type checkers.
    """

    __slots__ = ()

    # The verbs of Context block in a thread without an event loop: only their types differ.
    if TYPE_CHECKING:

        @property
        def parents(self) -> SyncParents: ...

        @property
        def workflow(self) -> SyncRunningWorkflow: ...

        @overload  # type: ignore[override]
        def step(
            self,
            name: str,
            function: Callable[Parameters, Awaitable[Value]],
            /,
            *args: Parameters.args,
            **kwargs: Parameters.kwargs,
        ) -> Value: ...

        @overload
        def step(
            self,
            name: str,
            function: Callable[Parameters, Value],
            /,
            *args: Parameters.args,
            **kwargs: Parameters.kwargs,
        ) -> Value: ...

        @overload
        def step(
            self, name: str, function: Callable[..., Any], /, *args: Any, index: int, **kwargs: Any
        ) -> Any: ...

        def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

        def sleep(self, delay: timedelta, *, name: str | None = None) -> None: ...  # type: ignore[override]

        @overload  # type: ignore[override]
        def wait_for(
            self,
            name: str,
            *,
            returns: type[Value],
            timeout: timedelta | None = None,
            index: int | None = None,
        ) -> Value: ...

        @overload
        def wait_for(
            self, name: str, *, timeout: timedelta | None = None, index: int | None = None
        ) -> Any: ...

        def wait_for(
            self,
            name: str,
            *,
            timeout: timedelta | None = None,
            index: int | None = None,
            returns: Any = None,
        ) -> Any: ...

        @overload  # type: ignore[override]
        def wait_for_any(
            self,
            *names: str,
            returns: type[Value],
            timeout: timedelta | None = None,
            index: int | None = None,
        ) -> tuple[str, Value]: ...

        @overload
        def wait_for_any(
            self, *names: str, timeout: timedelta | None = None, index: int | None = None
        ) -> tuple[str, Any]: ...

        def wait_for_any(
            self,
            *names: str,
            timeout: timedelta | None = None,
            index: int | None = None,
            returns: Any = None,
        ) -> Any: ...

        def hold(self, until: timedelta | datetime) -> None: ...  # type: ignore[override]

        def complete(self, connection: Any, result: object = None) -> None: ...  # type: ignore[override]
