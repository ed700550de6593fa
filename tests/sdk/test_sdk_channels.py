"""The settings of connections to pulsed."""

from __future__ import annotations

from pulse import tuning
from pulse.wire.endpoint import make_endpoint
from pulse.wire.servers import _options


def test_peer_that_answers_no_ping_is_given_up_after_the_timeout() -> None:
    """The timeout of keepalives alone has no effect in newer versions of gRPC: it took 60 s."""
    options = dict(_options(make_endpoint("localhost:1", None, None)))
    assert options["grpc.http2.ping_timeout_ms"] == tuning.KEEPALIVE_TIMEOUT_MILLISECONDS
