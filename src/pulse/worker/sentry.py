"""Gives each attempt an isolation scope of Sentry: the tags, the user and the breadcrumbs of its events.

A copy of contextvars refers to the same scope as the original, so that what one handler sets would be on the
events of all later ones. Sentry's own integrations fork the scope for each request or task. This module does
not import sentry_sdk: applications that do not use it pay nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable
from typing import Any

# Shorter than the grace after a time limit: a child process is killed when the grace ends.
_SEND_SECONDS = 2.0


def contextvars_of_process() -> contextvars.Context:
    """Return a copy of the caller's contextvars, which refers to the same scope.

    Call it before resources are opened: tags that they set in the scope are then on the events of
    all attempts.
    """
    if (scopes := _scopes()) is not None:
        scopes.get_isolation_scope()  # makes it, if it is not there
    return contextvars.copy_context()


def copies_for_attempts(process: contextvars.Context) -> Callable[[], contextvars.Context]:
    """Return a function that makes the contextvars of an attempt: a copy with a forked scope.

    Call it after resources are opened: a resource may be the first to import sentry_sdk.
    """
    scopes = _scopes()
    if scopes is None:
        return process.copy
    process.run(scopes.get_isolation_scope)

    def copy() -> contextvars.Context:
        own = process.copy()
        try:
            own.run(_fork, scopes)
        except Exception:
            return process.copy()  # the job matters more than its tags
        return own

    return copy


def send_events() -> None:
    """Wait until Sentry has sent the events so far. Call it before the process is killed.

    A thread sends them. At an ordinary exit Sentry itself waits for the thread, for the same time.
    """
    sentry = sys.modules.get("sentry_sdk")
    if sentry is not None:
        with contextlib.suppress(Exception):
            sentry.flush(timeout=_SEND_SECONDS)


def _scopes() -> Any:
    """Return the class that has the scopes, or None if sentry_sdk is not used or is older than 2.0."""
    scopes = getattr(sys.modules.get("sentry_sdk"), "Scope", None)
    return scopes if hasattr(scopes, "set_isolation_scope") else None


def _fork(scopes: Any) -> None:
    # Not `with isolation_scope()`: the scope lasts until the outcome is logged, and a generator that is never
    # closed would reset the contextvars of another context when it is collected.
    own = scopes.get_isolation_scope().fork()
    own.clear_breadcrumbs()  # of the worker: they do not concern this attempt
    own.set_new_propagation_context()  # else all jobs would be of one trace
    scopes.set_isolation_scope(own)
    scopes.set_current_scope(scopes.get_current_scope().fork())
