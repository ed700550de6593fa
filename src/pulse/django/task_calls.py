"""Runs the tasks of Django as handlers of pulse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from pulse.django.clients import client
from pulse.django.task_framework import base, normalize_json, signals
from pulse.django.task_results import Arguments, NotJson, raised_error, running_result
from pulse.handlers.context import Context
from pulse.handlers.sync_context import SyncContext
from pulse.outcomes import Snooze, TimedOut, is_cancelled, suspension_in
from pulse.worker.handler_errors import is_discarded

_Status = base.TaskResultStatus


def handler_of(task: Any, sender: type) -> Callable[..., Any]:
    """Return the handler that runs the task. `sender` sends the signals of Django."""

    def call(context: SyncContext, args: Arguments | None = None) -> Any:
        result = running_result(task, context, args or {})
        signals.task_started.send_robust(sender, task_result=result)
        try:
            value = _as_json(task.func(*_arguments(task, result), **result.kwargs))
        except BaseException as error:
            if _is_final(error, context):
                signals.task_finished.send_robust(sender, task_result=_ended(result, error=error))
            raise
        signals.task_finished.send_robust(sender, task_result=_ended(result, value))
        return value

    async def acall(context: Context, args: Arguments | None = None) -> Any:
        result = running_result(task, context, args or {})
        await signals.task_started.asend_robust(sender, task_result=result)
        try:
            value = _as_json(await task.func(*_arguments(task, result), **result.kwargs))
        except BaseException as error:
            if _is_final(error, context):
                # Not asend_robust, which calls receivers in new tasks: Django's own logs the current error.
                await sync_to_async(signals.task_finished.send_robust)(
                    sender, task_result=_ended(result, error=error)
                )
            raise
        await signals.task_finished.asend_robust(sender, task_result=_ended(result, value))
        return value

    handler = acall if iscoroutinefunction(task.func) else call
    # Messages, and the child processes of handlers with process=True, find the task by these.
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(handler, name, getattr(task.func, name))
    return handler


def _is_final(error: BaseException, context: Context) -> bool:
    """True if the task has failed for good: it is not retried, and was not stopped or suspended."""
    if isinstance(error, TimedOut):
        return context.is_last_attempt
    if isinstance(error, Snooze) or is_cancelled(error) or suspension_in(error) is not None:
        return False
    if isinstance(error, asyncio.CancelledError) or context.cancelled:
        return False
    handler = client()._registry.get(context.topic)
    return context.is_last_attempt or (handler is not None and is_discarded(error, handler.options))


def _ended(result: Any, value: Any = None, error: BaseException | None = None) -> Any:
    """Return the result with the outcome of its attempt."""
    failed = error is not None
    changes = {
        "status": _Status.FAILED if failed else _Status.SUCCESSFUL,
        "finished_at": timezone.now(),
        "_return_value": value,
        "errors": [raised_error(error)] if error is not None else [],
    }
    for name, changed in changes.items():
        object.__setattr__(result, name, changed)
    return result


def _as_json(value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise NotJson(f"The task returned a value that cannot be stored: {error}") from None


def _arguments(task: Any, result: Any) -> list[Any]:
    return [base.TaskContext(task_result=result), *result.args] if task.takes_context else result.args
