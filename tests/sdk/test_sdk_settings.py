"""Addresses, settings and contexts: what needs no server."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import pulse
from pulse.wire.endpoint import make_endpoint
from tests.rows import each_row


@each_row(
    "given, address, target",
    [
        (None, "localhost:50051", "127.0.0.1:50051"),
        ("", "localhost:50051", "127.0.0.1:50051"),
        ("example.org", "example.org:50051", "example.org:50051"),
        ("10.0.0.1:7", "10.0.0.1:7", "10.0.0.1:7"),
        (":9000", "localhost:9000", "127.0.0.1:9000"),
        ("[::1]:9000", "[::1]:9000", "[::1]:9000"),
    ],
)
def test_address_may_be_short(given: str | None, address: str, target: str) -> None:
    endpoint = make_endpoint(given, None, None)
    assert (endpoint.address, endpoint.target) == (address, target)


@each_row("bad", ["http://x:1", "host:port", "a:1:2", "::1", "host:0", "host:70000", "a b", "h:"])
def test_address_that_cannot_be_meant_is_refused_at_once(bad: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match="host:port"):
        pulse.Pulse(bad)


def test_address_may_name_several_servers() -> None:
    endpoint = make_endpoint("a.example, :9000 ,[::1]:7", "ann", "secret", tls=True)
    assert endpoint.address == "a.example:50051,localhost:9000,[::1]:7"
    assert pulse.Pulse("a,b").address == "a:50051,b:50051"
    each = {one.address: one for one in endpoint.each}
    assert [one.target for one in endpoint.each] == ["a.example:50051", "127.0.0.1:9000", "[::1]:7"]
    # With TLS the certificate of each has to be for its own host.
    assert [one.tls and one.tls.server_name for one in endpoint.each] == ["a.example", "localhost", "::1"]
    assert (each["a.example:50051"].is_local, each["localhost:9000"].is_local) == (False, True)
    assert {one.metadata for one in endpoint.each} == {endpoint.metadata}


@each_row(
    "bad, sentence",
    [
        ("a:1,", "a comma without an address"),
        (",", "a comma without an address"),
        ("a:1,,b:1", "a comma without an address"),
        ("a:1,a:1", "names a:1 twice"),
        ("localhost,:50051", "names localhost:50051 twice"),
        ("a:1,http://b", "'http://b' cannot be understood"),
        ("a:1;b:1", "cannot be understood"),
    ],
)
def test_wrong_list_of_addresses_is_refused_with_a_sentence(bad: str, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Pulse(bad)


def test_environment_fills_in_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSE_ADDR", "queue.internal:1234")
    monkeypatch.setenv("PULSE_USER", "ann")
    monkeypatch.setenv("PULSE_PASSWORD", "secret")
    assert pulse.Pulse().address == "queue.internal:1234"
    assert pulse.Pulse("other").address == "other:50051"
    assert make_endpoint(None, None, None).metadata == (("authorization", "Basic YW5uOnNlY3JldA=="),)
    assert "secret" not in repr(make_endpoint(None, None, None))
    monkeypatch.setenv("PULSE_ADDR", "not an address")
    with pytest.raises(pulse.InvalidArgument, match="PULSE_ADDR"):
        pulse.SyncPulse()


@each_row(
    "options, sentence",
    [
        ({"user": "ann"}, r"password \(PULSE_PASSWORD\) is missing"),
        ({"password": "x"}, r"user \(PULSE_USER\) is missing"),
        ({"user": "a:b", "password": "x"}, "colon"),
        ({"concurrency": 0}, "concurrency has to be between"),
        ({"timeout": 5}, "timeout has to be a timedelta"),
        ({"drain_timeout": timedelta(seconds=-1)}, "drain_timeout has to be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Pulse(**options)  # type: ignore[arg-type]


def test_context_made_by_hand_serves_a_unit_test(caplog: pytest.LogCaptureFixture) -> None:
    ctx = pulse.Context(job_id="j", topic="t", attempt=3, metadata={"a": "b"})
    assert (ctx.job_id, ctx.is_last_attempt, ctx.metadata, ctx.idempotency_key) == (
        "j",
        True,
        {"a": "b"},
        None,
    )
    with caplog.at_level(logging.INFO, "pulse.job"):
        ctx.logger.info("hello", extra={"own": 1})
    record = caplog.records[0]
    assert (record.job_id, record.topic, record.attempt, record.own) == ("j", "t", 3, 1)  # type: ignore[attr-defined]
    ctx.raise_if_cancelled()


def test_there_is_no_current_job_outside_of_a_handler() -> None:
    with pytest.raises(pulse.PulseError, match="outside of a handler"):
        pulse.current()
