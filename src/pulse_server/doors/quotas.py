"""Bounds calls that are costly for the database or this process, in total and per caller.

Connections on which no caller was let in are closed (ADR-0038). A connection without calls that answers the
pings of the server keeps a file descriptor. gRPC closes it after CONNECTION_IDLE, for which clients that were
let in may be silent. gRPC does not report connections to Python, so this module finds them among the sockets
of the process, and shuts them down. gRPC then closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc

from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.loops import Loop, lease_clock
from pulse_server.base.sharing import Budget
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.boundary import Behavior
from pulse_server.doors.callers import calling_user

# Requests that wait to be read, up to 64 KiB of each in a buffer, and for how long. A thousand workers may
# come back at once.
REQUESTS_IN_LINE = 2048
REQUEST_TURN = timedelta(seconds=10)

_BUSY = "The server is reading as many requests as it can. Try again in a moment."


class Quota:
    """Room for calls, each of which takes as much at first. The waiting caller that has least is next."""

    def __init__(
        self,
        most: int,
        *,
        of_one: int | None = None,
        each: int = 1,
        spare: int = 0,
        turn: timedelta = REQUEST_TURN,
        busy: str = _BUSY,
    ) -> None:
        """`spare`: how much of `most` is kept for callers that have less than `each`."""
        self._most = most
        self._of_one = of_one or max(1, most * 2 // 3)
        self._taken = Budget(most, of_one=self._of_one, refusal=busy)
        self._each = each
        self._spare = spare
        self._turn = turn.total_seconds()
        self._busy = busy
        self._queue: dict[asyncio.Future[None], str] = {}

    def is_wanted(self, caller: str) -> bool:
        """Whether a request waits that could have the room of this caller."""
        return any(
            waiting == caller or self._taken.of(waiting) + self._each <= self._of_one
            for waiting in self._queue.values()
        )

    def _has_room(self, caller: str) -> bool:
        kept = self._spare if self._taken.of(caller) >= self._each else 0
        return self._taken.total + self._each + kept <= self._most and self._taken.has_room(
            caller, self._each
        )

    def try_enter(self, caller: str) -> bool:
        """Take room if there is some for the caller."""
        return self._has_room(caller) and self._taken.take(caller, self._each)

    async def enter(self, caller: str) -> None:
        """Wait for room and take it. Raises ResourceExhausted if the queue is full or the wait too long."""
        if self.try_enter(caller):
            return
        if self._is_queue_full(caller):
            raise ResourceExhausted(self._busy)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = caller
        try:
            async with asyncio.timeout(self._turn):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave(caller)  # it got the room at the same moment
            if isinstance(error, TimeoutError):
                raise ResourceExhausted(self._busy) from None
            raise
        finally:
            self._queue.pop(turn, None)

    def _is_queue_full(self, caller: str) -> bool:
        """Whether the request may not wait. One caller may have half of the queue."""
        if len(self._queue) * 2 < REQUESTS_IN_LINE:
            return False
        of_caller = sum(waiting == caller for waiting in self._queue.values())
        return len(self._queue) >= REQUESTS_IN_LINE or of_caller * 2 >= REQUESTS_IN_LINE

    def keep(self, caller: str, count: int) -> int:
        """Have `count` in place of what `enter` took. Returns it, or raises ResourceExhausted."""
        if count > self._each and not self._taken.take(caller, count - self._each):
            raise ResourceExhausted(self._busy)
        if count < self._each:
            self._give_back(caller, self._each - count)
        return count

    def leave(self, caller: str, count: int | None = None) -> None:
        """Free what `enter` took, or what `keep` left, for the next in the queue."""
        self._give_back(caller, self._each if count is None else count)

    def _give_back(self, caller: str, count: int) -> None:
        self._taken.give_back(caller, count)
        self._grant_next()

    def _grant_next(self) -> None:
        while self._queue and self._taken.total + self._each <= self._most:
            waiting = [turn for turn, caller in self._queue.items() if self._has_room(caller)]
            if not waiting:
                return
            turn = min(waiting, key=lambda turn: self._taken.of(self._queue[turn]))
            caller = self._queue.pop(turn)
            if not turn.done():
                self._taken.take(caller, self._each)
                turn.set_result(None)


# How long a call waits for a slot.
COSTLY_CALL_TURN = timedelta(seconds=3)
# The offset from which a list counts as a search.
OFFSET_FOR_FREE = 1000

_COSTLY_CALLS_BUSY = "Too many calls of this kind are in progress. Try again in a moment."


class CostlyCalls:
    def __init__(self, most: int) -> None:
        self._quota = Quota(most, turn=COSTLY_CALL_TURN, busy=_COSTLY_CALLS_BUSY)
        self._in_progress: set[asyncio.Task[Any]] = set()

    def limited(
        self, behavior: Behavior, is_costly: Callable[[Any], bool] = lambda _request: True
    ) -> Behavior:
        """Return the behavior; its costly calls wait for a slot. ResourceExhausted if that takes too long."""

        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            if not is_costly(request):
                return await behavior(request, context)
            caller = calling_user() or peer_address(context.peer())
            await self._quota.enter(caller)
            # A caller that disconnects does not end its statement in the database. The slot is taken until
            # the statement is done.
            answering = asyncio.ensure_future(behavior(request, context))
            self._in_progress.add(answering)
            answering.add_done_callback(lambda done: self._release_slot(done, caller))
            try:
                return await asyncio.shield(answering)
            finally:
                del answering  # its error keeps this frame

        return call

    def _release_slot(self, answering: asyncio.Task[Any], caller: str) -> None:
        self._in_progress.discard(answering)
        self._quota.leave(caller)
        if not answering.cancelled():
            answering.exception()  # retrieved, since the caller may have disconnected


def searches(request: Any) -> bool:
    """Whether the filter reads the jobs themselves: no index covers their errors and metadata."""
    wanted = getattr(request, "filter", request)
    return bool(wanted.error_contains or wanted.metadata)


def searches_or_skips(request: Any) -> bool:
    """Whether the list reads the jobs themselves, or skips many."""
    return searches(request) or request.offset > OFFSET_FOR_FREE


# Time until a user's first call, or on a server without users any first call. A health check
# restarts it.
FIRST_CALL = timedelta(seconds=30)
# Connections without such a call, per address. Beyond it the oldest are closed.
SILENT_PER_ADDRESS = 100
LOOK = timedelta(seconds=5)
_DESCRIPTORS = Path("/dev/fd")  # on Linux and macOS

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    host: str
    port: int


class SilentConnections:
    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self.port = 0
        """The server's port; 0: not listening yet."""
        self._clock = clock
        # Peers as gRPC names them: a call adds its name and does no other work.
        self._let_in: set[str] = set()
        self._checked: dict[str, float] = {}
        self._watching: Counter[str] = Counter()
        self._first_seen: dict[Peer, float] = {}
        self.loop = Loop("silent connections", self.close, LOOK)

    def let_in(self, peer: str) -> None:
        """A caller on this connection was let in."""
        self._let_in.add(peer)

    @contextmanager
    def anonymous_call(self, peer: str) -> Iterator[None]:
        """Count a call without a user, such as a health check. While it runs the connection is not silent."""
        self._watching[peer] += 1
        try:
            yield
        finally:
            self._watching[peer] -= 1
            if not self._watching[peer]:
                del self._watching[peer]
            self._checked[peer] = self._clock()

    async def close(self) -> None:
        """Close the connections that have been silent for too long, or are too many of one address."""
        if not self.port:
            return
        known = self._let_in | self._checked.keys()
        sockets = await asyncio.to_thread(_connections, self.port)
        try:
            self._forget(name for name in known if _peer(name) not in sockets)
            self._first_seen = {peer: at for peer, at in self._first_seen.items() if peer in sockets}
            silent = self._silent(sockets)
            for peer in silent:
                with contextlib.suppress(OSError):  # the client has closed it
                    sockets[peer].shutdown(socket.SHUT_RDWR)
            if silent:
                hosts = Counter(peer.host for peer in silent)
                log.warning(
                    "silent_connections_closed",
                    extra={"count": len(silent), "address": hosts.most_common(1)[0][0]},
                )
        finally:
            for own in sockets.values():
                own.close()

    def _silent(self, sockets: Mapping[Peer, object]) -> list[Peer]:
        now = self._clock()
        let_in = {_peer(name) for name in (*self._let_in, *self._watching)}
        checked = {_peer(name): at for name, at in self._checked.items()}
        ages: dict[str, list[tuple[float, Peer]]] = defaultdict(list)
        for peer in sockets.keys() - let_in:
            since = max(self._first_seen.setdefault(peer, now), checked.get(peer, 0.0))
            ages[peer.host].append((now - since, peer))
        longest = FIRST_CALL.total_seconds()
        return [
            peer
            for of_address in ages.values()
            for place, (age, peer) in enumerate(sorted(of_address))
            if age > longest or place >= SILENT_PER_ADDRESS
        ]

    def _forget(self, ended: Iterable[str]) -> None:
        """Forget connections that have ended: another one may get their port.

        Connections let in during the look stay: the look may have missed them.
        """
        for name in ended:
            self._let_in.discard(name)
            self._checked.pop(name, None)


def _connections(port: int) -> dict[Peer, socket.socket]:
    """Return the connections that were made to the port of this process, as sockets of our own."""
    found: dict[Peer, socket.socket] = {}
    try:
        descriptors = [int(file.name) for file in _DESCRIPTORS.iterdir()]
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            # A copy: the descriptor may be closed, and its number reused, during the look.
            copy = os.dup(descriptor)
        except OSError:
            continue
        try:
            own = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        try:
            if own.family in (socket.AF_INET, socket.AF_INET6) and own.getsockname()[1] == port:
                host, its_port = own.getpeername()[:2]
                found[Peer(_host(host), its_port)] = own
                continue
        except OSError:  # it listens, or is closed
            pass
        own.close()
    return found


@lru_cache(maxsize=10_000)
def _peer(name: str) -> Peer:
    """Read what gRPC calls a peer: ipv4:127.0.0.1:5000, or ipv6:%5B::1%5D:5000."""
    host, _, port = unquote(name).partition(":")[2].rpartition(":")
    return Peer(_host(host.strip("[]")), int(port) if port.isdigit() else 0)


def _host(text: str) -> str:
    """Return the address. A socket of both families names IPv4 addresses as IPv6."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)
