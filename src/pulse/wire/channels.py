"""gRPC channels to pulsed, and their options."""

from __future__ import annotations

import logging
import os

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.quiet import refuse_gevent
from pulse.wire.endpoint import Endpoint

logger = logging.getLogger("pulse")

_warned_about: set[str] = set()
_used_in: int | None = None


def open_channel(endpoint: Endpoint) -> grpc.aio.Channel:
    """Open a channel that belongs to the running event loop. Raises ClientClosed in a forked child."""
    _check_process()
    _warn_about_plain_text(endpoint)
    options = _options(endpoint)
    if endpoint.tls is None:
        return grpc.aio.insecure_channel(endpoint.target, options)
    return grpc.aio.secure_channel(endpoint.target, endpoint.tls.credentials(), options)


def open_blocking_channel(endpoint: Endpoint) -> grpc.Channel:
    """Open a channel for blocking calls, from any thread. Raises ClientClosed in a forked child."""
    _check_process()
    options = _options(endpoint)
    if endpoint.tls is None:
        return grpc.insecure_channel(endpoint.target, options)
    return grpc.secure_channel(endpoint.target, endpoint.tls.credentials(), options)


def refuse_forked_child() -> None:
    """Raise ClientClosed where gRPC would hang: in a child that was forked after its first use."""
    if _used_in not in (None, os.getpid()):
        raise ClientClosed(
            "This process was forked after a client was used, and gRPC does not work in such a child. Start "
            'it with multiprocessing.get_context("spawn") or subprocess, or fork before the first call.'
        )


def _check_process() -> None:
    """Raise ClientClosed where gRPC does not work. From here on this process has used it."""
    global _used_in
    refuse_forked_child()
    _used_in = os.getpid()
    try:
        refuse_gevent()
    except ImportError as error:
        raise ClientClosed(str(error)) from None


def _options(endpoint: Endpoint) -> list[tuple[str, int | str]]:
    ping, ping_timeout = tuning.KEEPALIVE_MILLISECONDS, tuning.KEEPALIVE_TIMEOUT_MILLISECONDS
    if endpoint.has_others:
        ping = ping_timeout = tuning.KEEPALIVE_OF_SEVERAL_MILLISECONDS
    options: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", ping),
        ("grpc.keepalive_timeout_ms", ping_timeout),
        # Decides alone in newer versions of gRPC, and is 60 s unless it is set.
        ("grpc.http2.ping_timeout_ms", ping_timeout),
        ("grpc.keepalive_permit_without_calls", 0),
        # An idle stream sends no data; its peer can vanish nevertheless.
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC's own retries would repeat calls that must not be repeated.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", tuning.REDIAL_FIRST_MILLISECONDS),
        ("grpc.max_reconnect_backoff_ms", tuning.REDIAL_LONGEST_MILLISECONDS),
        # A TCP connection for each channel: heartbeats must not queue behind a full stream.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if endpoint.has_others:
        # The time for a connection to be made: 20 s unless it is set.
        options.append(("grpc.min_reconnect_backoff_ms", tuning.CONNECT_OF_SEVERAL_MILLISECONDS))
    if endpoint.tls is not None:
        options.append(("grpc.default_authority", endpoint.authority))
    if endpoint.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _warn_about_plain_text(endpoint: Endpoint) -> None:
    """Log once per address that a password is sent over the network unencrypted."""
    if (
        endpoint.tls is None
        and endpoint.metadata
        and not endpoint.is_local
        and endpoint.address not in _warned_about
    ):
        _warned_about.add(endpoint.address)
        logger.warning(
            "The password goes to pulsed at %s in plain text: use TLS, with tls=True or PULSE_TLS=on.",
            endpoint.address,
        )
