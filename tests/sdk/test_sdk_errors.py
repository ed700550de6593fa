"""The errors of the SDK, and the text of a failed attempt."""

from __future__ import annotations

import inspect
import pickle
from datetime import timedelta
from typing import Any

import grpc
import pytest

import pulse
from pulse import errors, tuning
from pulse.error_text import clean
from pulse.outcomes import failure
from pulse.wire.endpoint import make_endpoint
from pulse.wire.servers import translate
from tests.rows import each_row


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
    too_large = "SERVER: Received message larger than max (5000000 vs. 4194304)"
    refused = translate(endpoint, grpc.StatusCode.RESOURCE_EXHAUSTED, too_large)
    assert isinstance(refused, pulse.InvalidArgument)
    assert "pulsed at h:1 takes up to 4 MiB. Send less at a time" in refused.message


def test_error_text_is_fit_to_be_stored() -> None:
    assert clean("a\x00b\ud800") == "ab?"
    assert len(clean("ü" * 10_000).encode()) <= tuning.ERROR_BYTES
    with pytest.raises(KeyError) as caught:
        {}["missing"]
    text = failure(caught.value).error
    assert text.startswith("KeyError: 'missing'")
    assert "test_sdk_errors.py" in text


def _retry_because_the_disk_is_full() -> None:
    try:
        raise OSError("disk full")
    except OSError as error:
        raise pulse.Retry from error


def test_retry_without_a_reason_reports_its_cause() -> None:
    with pytest.raises(pulse.Retry) as caught:
        _retry_because_the_disk_is_full()
    assert "disk full" in failure(caught.value).error
    with pytest.raises(pulse.InvalidArgument, match="past"):
        pulse.Retry(after=timedelta(seconds=-1))


@each_row("after", [1.0, 60, "5m"])
def test_retry_after_anything_but_a_timedelta_is_refused_with_a_sentence(after: Any) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"has to be a timedelta(, such as|: write) timedelta\("):
        pulse.Retry(after=after)
