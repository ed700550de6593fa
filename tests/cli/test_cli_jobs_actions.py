"""`pulse jobs cancel` and `retry`, by ids and by their prefixes."""

from collections.abc import Callable

from tests.cli.command_line import CommandLine, plain_text

UNKNOWN = "0199c0de-0000-7000-8000-000000000001"


def test_canceled_job_can_be_retried(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    job_id = stored(topic, "--max-attempts", "5")
    (canceled,) = pulse("jobs", "cancel", job_id, "--reason", "sent twice", "-o", "json").json
    assert (canceled["status"], canceled["last_error"]) == ("CANCELED", "sent twice")
    result = pulse("jobs", "retry", job_id, "--attempts", "9")
    assert "PENDING" in result.out
    assert pulse("jobs", "get", job_id, "-o", "json").json["max_attempts"] == 9


def test_one_refusal_does_not_stop_the_rest(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    first, second = stored(topic), stored(topic)
    result = pulse("jobs", "cancel", first, UNKNOWN, second, "-o", "plain")
    assert result.code == 3
    assert result.rows == [[first, "CANCELED"], [second, "CANCELED"]]
    assert UNKNOWN in result.err


def test_retry_of_a_job_that_waits_is_refused(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    result = pulse("jobs", "retry", stored(topic), "-o", "json")
    assert (result.code, result.json) == (1, [])
    assert "PENDING" in result.err


def test_ambiguous_prefix_stops_before_anything_is_canceled(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    first, second = stored(topic), stored(topic)
    shared = first[: next(at for at in range(36) if first[at] != second[at])]
    result = pulse("jobs", "cancel", first, shared)
    assert result.code == 2
    assert result.err.count(shared) >= 3, "what was typed, and some of the ids that begin like it"
    assert "Type more of it" in result.err
    assert pulse("jobs", "get", first, "-o", "json").json["status"] == "PENDING"


def test_unknown_prefix_stops_before_anything_is_canceled(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job_id = stored(topic)
    assert pulse("jobs", "cancel", job_id, "0000c0de").code == 3
    assert pulse("jobs", "get", job_id, "-o", "json").json["status"] == "PENDING"


def test_unique_prefix_of_an_id_is_enough(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    job_id = stored(topic)
    for typed in (job_id[:-1], job_id[:-2].upper(), job_id.replace("-", "")[:30]):
        assert pulse("jobs", "get", typed, "-o", "json").json["id"] == job_id
    assert pulse("jobs", "cancel", job_id[:-1], job_id, "-o", "plain").rows == [[job_id, "CANCELED"]]
    assert pulse("jobs", "retry", job_id[:-1], "-o", "plain").rows == [[job_id, "PENDING"]]
    assert job_id in plain_text(pulse.screen("jobs", "get", job_id[:-1]).out)


def test_cancel_at_a_terminal(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    job_id = stored(topic)
    assert "it is now CANCELED" in pulse.screen("jobs", "cancel", job_id).out
    assert "it is now PENDING" in pulse.screen("jobs", "retry", job_id).out
