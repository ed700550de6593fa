"""A connection to pulsed: calls with a timeout and retries, streams, and errors as sentences.

Why no connection can be made is diagnosed by a separate handshake: gRPC reports few details.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed, DeadlineExceeded, PulseError, Unavailable
from pulse.wire.endpoint import Endpoint, Tls
from pulse.wire.redirection import current_redirection
from pulse.wire.servers import (
    JitteredBackoff,
    Servers,
    is_from_pulsed,
    is_retryable,
    no_answer,
    open_channel,
    translate,
    unreachable,
    was_never_sent,
)

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

Request = TypeVar("Request")
Response = TypeVar("Response")

# Of an answer: the time by the clock of the database, in seconds since 1970.
_TIME = "pulse-time"

logger = logging.getLogger("pulse.topics")


class Connection:
    """The calls to one pulsed, or to one of several. Belongs to the event loop that created it."""

    def __init__(self, endpoint: Endpoint) -> None:
        redirection = current_redirection()
        opened: Callable[[Endpoint], grpc.aio.Channel] = open_channel
        if redirection is not None:
            endpoint, opened = redirection.connect(endpoint)
        self.endpoint = endpoint
        self.is_remote = redirection is None or redirection.runs_workers
        """False if no network is used: in tests."""
        self.servers = Servers(endpoint, opened, self._end_streams_elsewhere)
        self.stub = self.servers.stub
        self.unserved = UnservedTopics()
        self.server_ahead = timedelta()
        """How far the clock of the server is ahead of this machine's, by its last answer with a time."""
        self._diagnosis = Diagnosis(endpoint)
        # The open streams, with the places of their servers.
        self._streams: WeakKeyDictionary[grpc.aio.Call, int] = WeakKeyDictionary()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: calls in flight end because of it."""
        return self._is_closed

    @property
    def is_ready(self) -> bool:
        """True while there is a connection to pulsed."""
        return not self._is_closed and self.servers.is_ready

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_seconds: float,
        repeatable: bool = True,
    ) -> Response:
        """Call, and retry until the timeout. Raises a PulseError.

        A call that is not repeatable is only retried if it was certainly not sent.
        """
        return await self.keep_trying(
            lambda seconds: self.try_once(method, request, min(seconds, tuning.TRY_TIMEOUT_SECONDS)),
            timeout_seconds,
            repeatable=repeatable,
        )

    async def keep_trying(
        self,
        try_once: Callable[[float], Awaitable[Response]],
        timeout_seconds: float,
        *,
        repeatable: bool = True,
        also: Callable[[grpc.aio.AioRpcError], bool] = lambda _error: False,
    ) -> Response:
        """Like `call`, for a function that makes one try and raises the errors of gRPC.

        `also` names further errors after which the call is repeated.
        """
        deadline = time.monotonic() + timeout_seconds
        task = asyncio.current_task()
        error: grpc.aio.AioRpcError
        refusal = ""
        async for _ in JitteredBackoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS, deadline):
            if self._is_closed:
                raise ClientClosed("The client was closed during the call.")
            try:
                return await try_once(max(deadline - time.monotonic(), 0.001))
            except grpc.aio.AioRpcError as failed:
                error = failed
                if not (is_retryable(error) or also(error)) or not (repeatable or was_never_sent(error)):
                    break
                self._diagnose(error)
                if is_from_pulsed(error):
                    refusal = error.details() or ""
            except asyncio.CancelledError:
                if self._is_closed and not (task and task.cancelling()):
                    raise ClientClosed("The client was closed during the call.") from None
                raise
        reason = await self.explain(error)
        if refusal and isinstance(reason, DeadlineExceeded):
            raise DeadlineExceeded(f"{reason} Its answer to the try before: {refusal}")
        raise reason

    async def try_once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS,
    ) -> Response:
        """Call once, with a timeout. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        at = self.servers.choose()
        try:
            call = method(request, timeout=timeout_seconds, metadata=self.endpoint.call_metadata)
            response = await call
        except grpc.aio.AioRpcError as error:
            self.servers.failed(at, error, timeout_seconds)
            del call
            raise _without_call(error) from None
        if self.is_remote:
            for name, value in await call.trailing_metadata():
                if name == _TIME:
                    now = datetime.now(UTC)
                    self.server_ahead = datetime.fromtimestamp(float(value), UTC) - now
        return response

    async def send_all(self, method: Any, messages: Iterable[Any], timeout_seconds: float) -> Any:
        """Send all messages of one call, once. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        at = self.servers.choose()
        try:
            return await method(messages, timeout=timeout_seconds, metadata=self.endpoint.metadata)
        except grpc.aio.AioRpcError as error:
            self.servers.failed(at, error, timeout_seconds)
            raise _without_call(error) from None

    def translate(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, with its cause if that is known already."""
        if self._diagnose(error) and (sentence := self._diagnosis.sentence):
            return Unavailable(sentence)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_from_pulsed(error):
            return self.out_of_time()
        return translate(self.endpoint, error.code(), error.details() or "", is_pulsed=is_from_pulsed(error))

    def out_of_time(self) -> PulseError:
        """Return the error for a call that got no answer in time.

        Without a connection the call was never sent: the server is not overloaded, it cannot be reached.
        """
        if self.is_ready:
            return no_answer(self.endpoint)
        # An earlier try may have failed with the reason, and the last one for want of time.
        reason = self._diagnosis.recent_sentence
        return unreachable(self.endpoint) if reason is None else Unavailable(reason)

    async def explain(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's. Waits for the diagnosis of its cause."""
        if self._diagnose(error) or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            await self._diagnosis.finished()
        return self.translate(error)

    def _diagnose(self, error: grpc.aio.AioRpcError) -> bool:
        """Start a diagnosis if the handshake may have failed. Returns whether it may."""
        may_be_the_handshake = (
            error.code() is grpc.StatusCode.UNAVAILABLE
            and not is_from_pulsed(error)
            and was_never_sent(error)
            and "refused" not in (error.details() or "")
            and not self._is_closed
        )
        if may_be_the_handshake:
            self._diagnosis.begin()
        return may_be_the_handshake

    def open_stream(
        self, method: grpc.aio.UnaryStreamMultiCallable[Request, Response], request: Request
    ) -> grpc.aio.UnaryStreamCall[Request, Response]:
        """Open a stream that `close` ends. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed between two connections.")
        at = self.servers.choose()
        call = method(request, metadata=self.endpoint.metadata)
        self._streams[call] = at
        return call

    def open_exchange(self, method: Any) -> Any:
        """Open a stream of messages in both directions, that `close` ends. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed between two connections.")
        at = self.servers.choose()
        call = method(metadata=self.endpoint.metadata)
        self._streams[call] = at
        return call

    async def read(self, call: grpc.aio.UnaryStreamCall[Request, Response]) -> Response | None:
        """Return the next message of a stream, or None at its end, also when calls go to another server.

        Raises the errors of gRPC, and ClientClosed.
        """
        try:
            message: Any = await call.read()
            return None if message is grpc.aio.EOF else message
        except grpc.aio.AioRpcError as error:
            self.servers.failed(self._streams.get(call, -1), error)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            if self._is_closed:
                raise ClientClosed("The client was closed while it had a stream open.") from None
            if self._streams.get(call) != self.servers.at:
                return None
            raise

    def _end_streams_elsewhere(self) -> None:
        for call, at in list(self._streams.items()):
            if at != self.servers.at:
                call.cancel()

    async def close(self) -> None:
        """Close the channel. Calls in flight fail."""
        self._is_closed = True
        self._diagnosis.close()
        self._end_streams()
        await self.servers.close()
        if not self.is_remote:
            return
        # gRPC still delivers the ends of canceled calls to this loop. If the loop is closed by then, another
        # loop of the process receives them and logs an error for each.
        await asyncio.sleep(tuning.SETTLE_SECONDS)
        # gRPC destroys a channel with its last call, and dials until then. Its calls are in reference cycles.
        if self.servers.was_dialing:
            gc.collect()

    def _end_streams(self) -> None:
        # grpcio 1.83 and later does this itself.
        for call in list(self._streams):
            call.cancel()


def _without_call(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return the error without gRPC's frames. A program that keeps it would keep its call and the channel."""
    return error.with_traceback(None)


class UnservedTopics:
    """Logs the server's notes about topics that no worker takes, each topic once for a connection."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(self, notes: Iterable[pb.NoWorker], *, own: Container[str] = ()) -> None:
        """Log what was not logged yet. Topics that this client is about to serve (`own`) are left out."""
        for note in notes:
            if note.topic not in self._logged and note.topic not in own:
                self._logged.add(note.topic)
                logger.warning("%s", note.note)


# Verification errors of OpenSSL (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_IGNORE_DATES = 0x200000  # X509_V_FLAG_NO_CHECK_TIME

_SETTINGS_FRAME = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS_FRAME


class Diagnosis:
    """The reason why pulsed cannot be reached. Belongs to one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._probe: asyncio.Task[str | None] | None = None
        self._begun_at = 0.0
        self.sentence: str | None = None

    def begin(self) -> None:
        """Start a probe, unless one is running or its result is recent."""
        if self._probe is not None and not self._is_outdated(self._probe):
            return
        self._begun_at = time.monotonic()
        self.sentence = None
        self._probe = asyncio.create_task(
            asyncio.to_thread(_why_any_is_unreachable, self._endpoint), name="pulse-diagnosis"
        )
        self._probe.add_done_callback(self._remember)

    async def finished(self) -> None:
        """Return once the probe has ended, in bounded time."""
        if self._probe is not None:
            await asyncio.wait({self._probe}, timeout=tuning.DIAGNOSIS_SECONDS)

    @property
    def recent_sentence(self) -> str | None:
        """The reason, unless it was found too long ago."""
        is_recent = time.monotonic() - self._begun_at <= tuning.DIAGNOSIS_GOOD_FOR_SECONDS
        return self.sentence if is_recent else None

    def close(self) -> None:
        """Cancel the probe."""
        if self._probe is not None:
            self._probe.cancel()

    def _is_outdated(self, probe: asyncio.Task[str | None]) -> bool:
        return probe.done() and time.monotonic() - self._begun_at > tuning.DIAGNOSIS_GOOD_FOR_SECONDS

    def _remember(self, probe: asyncio.Task[str | None]) -> None:
        if not probe.cancelled():
            self.sentence = probe.result() if probe.exception() is None else None


def _why_any_is_unreachable(endpoint: Endpoint) -> str | None:
    return next(filter(None, map(why_unreachable, endpoint.each)), None)


def why_unreachable(endpoint: Endpoint) -> str | None:
    """Return why the handshake fails, as a sentence, or None if it does not. Blocks, for a bounded time."""
    deadline = time.monotonic() + tuning.DIAGNOSIS_SECONDS
    try:
        if endpoint.tls is None:
            return _why_without_tls(endpoint, deadline)
        return _why_with_tls(endpoint, endpoint.tls, deadline)
    except (OSError, ValueError):
        return None  # no server answers, or TLS is not the problem


def _why_without_tls(endpoint: Endpoint, deadline: float) -> str | None:
    if not _speaks_tls(endpoint, deadline):
        return None
    return (
        f"pulsed at {endpoint.address} speaks TLS, and this client does not: give tls=True (PULSE_TLS=on), "
        "or ca=… (PULSE_TLS_CA) with the file of its authority if this machine does not trust it."
    )


def _why_with_tls(endpoint: Endpoint, tls: Tls, deadline: float) -> str | None:
    try:
        with _secured(endpoint, tls.server_name, _context(tls), deadline) as connection:
            connection.sendall(_HELLO)
            if connection.recv(len(_SETTINGS_FRAME)):
                return None  # this handshake succeeded
        return _about_the_client(endpoint, tls, "")
    except ssl.SSLCertVerificationError as error:
        return _about_the_server(endpoint, tls, error, deadline)
    except TimeoutError:
        return None
    except OSError as error:
        if _speaks_plain(endpoint, deadline):
            return (
                f"pulsed at {endpoint.address} does not speak TLS: leave out tls, ca and cert "
                "(PULSE_TLS=off), or turn TLS on there with PULSE_TLS_CERT and PULSE_TLS_KEY."
            )
        if _speaks_tls(endpoint, deadline) or "ALERT" in (getattr(error, "reason", None) or ""):
            return _about_the_client(endpoint, tls, getattr(error, "reason", None) or "")
        raise


def _about_the_server(
    endpoint: Endpoint, tls: Tls, error: ssl.SSLCertVerificationError, deadline: float
) -> str:
    subject = f"The certificate of pulsed at {endpoint.address}"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        if tls.ca is not None:
            return (
                f"{subject} is not signed by an authority in {str(tls.ca)!r}: give the file of the one that "
                "signed it with ca=… or PULSE_TLS_CA."
            )
        return (
            f"{subject} is signed by an authority that this machine does not know: give that one's file "
            "with ca=… or PULSE_TLS_CA."
        )
    shown = _certificate(endpoint, tls, deadline)
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(value for _, value in shown.get("subjectAltName", ())) or "another name"
        return (
            f"{subject} is for {names}, not for {tls.server_name}: connect to a name that it is for, or give "
            "that name with server_name=…."
        )
    if error.verify_code == _EXPIRED:
        when = f" on {shown['notAfter']}" if "notAfter" in shown else ""
        return f"{subject} expired{when}: renew it there (PULSE_TLS_CERT), or look at this machine's clock."
    if error.verify_code == _NOT_YET_VALID:
        when = f" before {shown['notBefore']}" if "notBefore" in shown else " yet"
        return f"{subject} is not valid{when}: compare the clocks of the two machines."
    return f"{subject} is not accepted: {error.verify_message}."


def _about_the_client(endpoint: Endpoint, tls: Tls, alert: str) -> str:
    """Return the sentence for a server that hung up: gRPC refuses a certificate without a reason."""
    if tls.certificate is None:
        return (
            f"pulsed at {endpoint.address} hangs up after the handshake, as a server that requires a client "
            "certificate does: give cert=(certificate, key), or set PULSE_TLS_CLIENT_CERT and "
            "PULSE_TLS_CLIENT_KEY."
        )
    reason = f" ({alert})" if alert and "EOF" not in alert else ""
    return (
        f"pulsed at {endpoint.address} refuses the client certificate {str(tls.certificate)!r}{reason}: "
        "it has expired, or its authority is not one of PULSE_TLS_CLIENT_CA there."
    )


# ---------------------------------------------------------------- probes


def _speaks_tls(endpoint: Endpoint, deadline: float) -> bool:
    context = _unverified()
    try:
        with _secured(endpoint, "", context, deadline):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plain(endpoint: Endpoint, deadline: float) -> bool:
    try:
        with _connected(endpoint, deadline) as plain:
            plain.sendall(_HELLO)
            return plain.recv(len(_SETTINGS_FRAME))[3:4] == b"\x04"
    except OSError:
        return False


def _certificate(endpoint: Endpoint, tls: Tls, deadline: float) -> dict[str, Any]:
    """Return the fields of the server's certificate, even if its name or its dates are wrong."""
    context = _context(tls)
    context.check_hostname = False
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _IGNORE_DATES)
    with contextlib.suppress(OSError), _secured(endpoint, tls.server_name, context, deadline) as connection:
        return dict(connection.getpeercert() or {})
    return {}


def _context(tls: Tls) -> ssl.SSLContext:
    # Not create_default_context: since Python 3.13 it is stricter than gRPC and would report other errors.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.roots:
        context.load_verify_locations(cadata=tls.roots.decode())
    else:
        context.load_default_certs()
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password="")
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@contextlib.contextmanager
def _secured(
    endpoint: Endpoint, name: str, context: ssl.SSLContext, deadline: float
) -> Iterator[ssl.SSLSocket]:
    with (
        _connected(endpoint, deadline) as plain,
        context.wrap_socket(plain, server_hostname=name or None) as connection,
    ):
        yield connection


@contextlib.contextmanager
def _connected(endpoint: Endpoint, deadline: float) -> Iterator[socket.socket]:
    remaining = max(0.05, deadline - time.monotonic())
    host, _, port = endpoint.target.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=remaining) as plain:
        yield plain
