"""Ids, addresses, errors, waits and windows: what needs no server."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import threading
import uuid
from datetime import timedelta

import grpc
import pytest

import pulse
from pulse import errors, tuning
from pulse.ids import uuid7
from pulse.outcomes import clean, failure
from pulse.wire.endpoint import make_endpoint
from pulse.wire.failures import translate
from pulse.worker.clock import ServerClock
from pulse.worker.window import Window
from tests.sdk.scripts import run_script


def test_ids_are_version_7_and_sort_as_they_were_made() -> None:
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {(7, uuid.RFC_4122)}


def test_ids_of_many_threads_never_meet() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend([uuid7() for _ in range(2000)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ids_of_a_forked_child_are_not_its_parents() -> None:
    # In a process of its own: this one has threads, and gRPC.
    printed = run_script(
        """
        import os, time
        from pulse.ids import uuid7
        time.time_ns = lambda: 10**18  # one millisecond for both
        uuid7()
        child = os.fork()
        made = uuid7()
        if child:
            os.waitpid(child, 0)  # one after the other: unbuffered, two prints could mix
        print(made, flush=True)
        """
    )
    first, second = printed.split()
    assert first[:13] == second[:13]
    assert first != second


@pytest.mark.parametrize(
    ("given", "address", "target"),
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


@pytest.mark.parametrize(
    "bad", ["http://x:1", "host:port", "a:1:2", "::1", "host:0", "host:70000", "a b", "h:"]
)
def test_address_that_cannot_be_meant_is_refused_at_once(bad: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match="host:port"):
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


@pytest.mark.parametrize(
    ("options", "sentence"),
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


def test_every_error_stands_in_one_tree_and_can_be_pickled() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert {kind.__name__ for kind in kinds} <= set(pulse.__all__)
    for kind in kinds:
        assert issubclass(kind, pulse.PulseError)
        if kind is not pulse.PartialFailure:
            assert pickle.loads(pickle.dumps(kind("why"))).message == "why"
    partial = pulse.PartialFailure({1: pulse.NotFound("gone")}, [pulse.JobHandle("a", "t"), None])
    copy = pickle.loads(pickle.dumps(partial))
    assert (copy.message, copy.handles, copy.errors[1].message) == (partial.message, partial.handles, "gone")


def test_what_handlers_raise_is_not_an_error_of_pulse() -> None:
    for kind in (pulse.Retry, pulse.Discard, pulse.Cancelled):
        assert not issubclass(kind, pulse.PulseError)


def test_sentence_of_the_server_is_kept_and_noise_of_grpc_is_not() -> None:
    endpoint = make_endpoint("h:1", None, None)
    sentence = "The database is away; try again soon."
    away = translate(endpoint, grpc.StatusCode.UNAVAILABLE, sentence, is_pulsed=True)
    assert away.message == sentence
    for noise in (
        "failed to connect to all addresses; last error: …",
        "Socket closed",
        "recvmsg:Connection reset",
        "",
    ):
        assert "No pulsed answers at h:1" in translate(endpoint, grpc.StatusCode.UNAVAILABLE, noise).message
    assert isinstance(translate(endpoint, grpc.StatusCode.UNKNOWN, "odd"), pulse.PulseError)


def test_error_text_is_fit_to_be_stored() -> None:
    assert clean("a\x00b\ud800") == "ab?"
    assert len(clean("ü" * 10_000).encode()) <= tuning.ERROR_BYTES
    with pytest.raises(KeyError) as caught:
        {}["missing"]
    text = failure(caught.value).error
    assert text.startswith("KeyError: 'missing'")
    assert "test_sdk_values.py" in text


def _retry_because_the_disk_is_full() -> None:
    try:
        raise OSError("disk full")
    except OSError as error:
        raise pulse.Retry from error


def test_retry_tells_its_cause_when_it_has_no_reason() -> None:
    with pytest.raises(pulse.Retry) as caught:
        _retry_because_the_disk_is_full()
    assert "disk full" in failure(caught.value).error
    with pytest.raises(pulse.InvalidArgument, match="past"):
        pulse.Retry(after=timedelta(seconds=-1))


def test_slow_handlers_get_no_work_ahead_and_fast_ones_do() -> None:
    window = Window(10)
    assert (window.size, window.news()) == (10, 0)
    assert _after_fast_jobs(window, 2000) == 510
    window.told(510)
    assert window.news() == 0
    for _ in range(20):
        window.observe(60)
        slow = window.size
    assert slow == 10
    assert window.news() == 10
    window.close()
    assert window.news() == 0


def test_window_doubles_only_after_a_window_full_of_fast_jobs() -> None:
    window = Window(10)
    assert _after_fast_jobs(window, 9) == 10
    assert _after_fast_jobs(window, 1) == 20
    assert _after_fast_jobs(window, 19) == 20
    assert _after_fast_jobs(window, 1) == 40


def test_window_has_a_bound() -> None:
    assert _after_fast_jobs(Window(100), 50_000) == 100 + tuning.PREFETCH_MOST
    assert _after_fast_jobs(Window(9_999), 50_000) == tuning.WINDOW_MOST


def _after_fast_jobs(window: Window, count: int) -> int:
    for _ in range(count):
        window.observe(0.001)
        size = window.size
    return size


def test_age_of_a_message_follows_from_the_fastest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("pulse.worker.clock.lease_clock", lambda: now)
    clock = ServerClock()
    clock.welcome(asked_at=50.0, reading=1000.0, clock_id="server")
    assert clock.age_seconds(1000.0) == 0
    now = 60.0
    assert clock.age_seconds(1003.0) == 7  # claimed 3 s after the welcome, read 10 s after it
    now = 61.0
    assert clock.age_seconds(1013.0) == 0  # so the welcome had been under way for 2 s
    assert clock.age_seconds(1003.0) == 10


def test_slow_welcome_is_made_up_for_by_a_faster_answer_of_the_same_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulse.worker.clock.lease_clock", lambda: 60.0)
    clock = ServerClock()
    clock.welcome(asked_at=50.0, reading=1008.0, clock_id="server")  # the handshake took 8 s
    assert clock.age_seconds(1010.0) == 8
    clock.compare(59.0, 5.0, "another server")
    assert clock.age_seconds(1010.0) == 8
    clock.compare(59.0, 1009.5, "server")
    assert clock.age_seconds(1010.0) == 0.5


def test_public_names_are_these() -> None:
    assert set(pulse.__all__) == {
        *("Pulse", "SyncPulse", "Job", "SyncJob", "Context", "current", "Retry", "Discard", "Cancelled"),
        *("JobHandle", "JobInfo", "JobStatus", "Attempt", "Page", "JobFilter", "JobCount", "Batch"),
        *(
            "TopicInfo",
            "TopicPage",
            "Rates",
            "Latency",
            "WorkerInfo",
            "HeldJob",
            "ServerInfo",
            "Transition",
            "Transitions",
        ),
        *("DeadLetters", "DeadLetterGroup", "Statistics", "Minute", "SchedulerStatus", "Identity"),
        *("At", "After", "Every", "Cron", "CatchUp", "Declaration", "Schedules", "SyncSchedules"),
        *("ScheduleInfo", "ScheduleFire", "SchedulePage", "FirePage", "DispatchStatus", "TopicPause"),
        *(
            "PulseError",
            "InvalidArgument",
            "InvalidHandler",
            "NotFound",
            "AlreadyExists",
            "InvalidTransition",
        ),
        *("Unauthenticated", "PermissionDenied", "ResourceExhausted", "Unavailable", "DeadlineExceeded"),
        *("InternalError", "PartialFailure", "ClientClosed"),
    }
    assert all(hasattr(pulse, name) for name in pulse.__all__)


def test_import_brings_in_no_optional_package() -> None:
    printed = run_script(
        """
        import sys
        from pulse import *
        print([name for name in ("pydantic", "uvloop", "asyncpg", "uuid_utils") if name in sys.modules])
        """
    )
    assert printed.strip() == "[]"


def test_stubs_are_imported_without_the_sdk() -> None:
    """pulsed has a use for them alone."""
    printed = run_script(
        """
        import sys
        import pulse.v1.pulse_pb2, pulse.failpoints
        print(*(name for name in sys.modules if name.startswith("pulse.")))
        """
    )
    assert set(printed.split()) == {"pulse.quiet", "pulse.failpoints", "pulse.v1", "pulse.v1.pulse_pb2"}


def test_modules_are_found_without_an_import_of_their_own() -> None:
    assert run_script("import pulse; print(pulse.errors.NotFound is pulse.NotFound)").strip() == "True"


def test_name_that_is_not_there_is_said_so() -> None:
    with pytest.raises(AttributeError, match="module 'pulse' has no attribute 'Pulze'"):
        pulse.Pulze  # type: ignore[attr-defined]  # noqa: B018
    assert set(pulse.__all__) <= set(dir(pulse))


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
