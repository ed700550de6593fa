"""Sends the clients of this process elsewhere than to their addresses. Only `pulse.testing` uses it.

A test may not connect to the address that an application has set: it could be the developer's own queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:  # every run of pytest imports this module: it has to be quick
    import asyncio

    import grpc.aio

    from pulse.wire.endpoint import Endpoint


class Redirection(Protocol):
    """The destination of all clients, also of clients that exist already."""

    runs_workers: bool
    """False: `run()` takes no job and waits until it is stopped. Processes of the test connect nowhere."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop for the verbs of an async client in `def` handlers."""

    def check(self) -> None:
        """Raise ClientClosed if no client may be used. Every verb calls it first."""

    def check_database(self) -> None:
        """Raise ClientClosed if no SQL of pulse may run on a connection of the application."""

    def connect(self, endpoint: Endpoint) -> tuple[Endpoint, Callable[[Endpoint], grpc.aio.Channel]]:
        """Return the endpoint to use instead, and how to open channels to it. Raises like `check`."""


REFUSED = (
    "A test uses a client of pulse, and the pytest plugin of pulse lets no client connect. Give the test the "
    "fixture pulse_kit, which runs jobs without a server, or pulse_server, which starts a real one. To let "
    "clients connect to their own addresses, use the fixture pulse_connect, or set `pulse_connect = true` in "
    "the settings of pytest."
)


class Refusing:
    """A destination that no client reaches. The error comes at the verb, at once."""

    runs_workers = False
    loop = None

    def __init__(self, sentence: str = REFUSED) -> None:
        self._sentence = sentence

    def check(self) -> None:
        from pulse.errors import ClientClosed  # when needed, as above

        raise ClientClosed(self._sentence)

    def check_database(self) -> None:
        self.check()

    def connect(self, endpoint: Endpoint) -> NoReturn:
        self.check()
        raise AssertionError(endpoint)


# Processes that a test starts refuse, too. The kit is in the process of the test alone.
_REFUSES = "PULSE_REFUSE_CONNECTIONS"
_current: Redirection | None = Refusing() if os.environ.get(_REFUSES) else None
_is_chosen = _current is not None
_usual: Callable[[], Redirection | None] | None = None


def current_redirection() -> Redirection | None:
    """Return the redirection in force, or None: clients connect to their own addresses."""
    return _current if _is_chosen or _usual is None else _usual()


def by_default(usual: Callable[[], Redirection | None]) -> None:
    """Ask this function for the redirection wherever no block of `redirected` has chosen one."""
    global _usual
    _usual = usual


def check_database() -> None:
    """Raise ClientClosed in a test that may not run the SQL of pulse on a connection of the application."""
    if (destination := current_redirection()) is not None:
        destination.check_database()


@contextmanager
def redirected(to: Redirection | None) -> Iterator[None]:
    """Send all clients of this process there while the block runs. None: to their own addresses."""
    global _current, _is_chosen
    before, was_chosen = _current, _is_chosen
    _current, _is_chosen = to, True
    refused = os.environ.pop(_REFUSES, None)
    if to is not None and not to.runs_workers:
        os.environ[_REFUSES] = "1"
    try:
        yield
    finally:
        _current, _is_chosen = before, was_chosen
        os.environ.pop(_REFUSES, None)
        if refused is not None:
            os.environ[_REFUSES] = refused
