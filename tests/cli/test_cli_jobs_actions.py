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


def test_filter_takes_several_topics_and_statuses(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    kept, canceled, other = stored(f"{topic}-a"), stored(f"{topic}-b"), stored(f"{topic}-c")
    pulse("jobs", "cancel", canceled)
    both = ("--topic", f"{topic}-a", "--topic", f"{topic}-b")
    listed = pulse("jobs", "list", *both, "--status", "PENDING", "--status", "CANCELED", "-o", "json").json
    assert [job["id"] for job in listed] == [canceled, kept]
    assert [job["id"] for job in pulse("jobs", "list", *both, "--status", "PENDING", "-o", "json").json] == [
        kept
    ]

    result = pulse("jobs", "cancel", *both, "--yes")

    assert f"1 job on {topic}-a or {topic}-b was canceled." in plain_text(result.out)
    assert pulse("jobs", "get", other, "-o", "json").json["status"] == "PENDING"


def test_status_that_cannot_be_changed_is_refused_beside_another(pulse: CommandLine) -> None:
    result = pulse("jobs", "cancel", "--status", "PENDING", "--status", "COMPLETED", "--yes")
    assert result.code == 2
    assert "COMPLETED jobs cannot be canceled" in result.err


def test_cancel_by_filter_is_undone_with_its_start_times(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    later, ready = stored(topic, "--delay", "2h"), stored(topic)
    due = pulse("jobs", "get", later, "-o", "json").json["next_run_at"]
    canceled = pulse("jobs", "cancel", "--topic", topic, "--yes", "-o", "json").json
    action = canceled["action_id"]
    assert pulse("undo", action).code == 2, "it asks first, and there is no terminal"
    assert "2 jobs would be undone." in plain_text(pulse("undo", action, "--dry-run").out)

    result = pulse("undo", action, "--yes")

    assert "2 jobs were undone." in plain_text(result.out)
    after = [pulse("jobs", "get", job_id, "-o", "json").json for job_id in (later, ready)]
    assert [job["status"] for job in after] == ["PENDING", "PENDING"]
    assert after[0]["next_run_at"] == due
    again = pulse("undo", action, "--yes")
    assert (again.code, "Nothing is left to undo" in again.err) == (1, True)


def test_undo_of_a_text_that_is_no_action_names_the_command_that_lists_actions(pulse: CommandLine) -> None:
    result = pulse("undo", "nonsense")
    assert (result.code, result.out) == (3, "")
    assert result.err == "pulse: There is no action 'nonsense': ids of actions are UUIDs. See: pulse audit\n"


def test_group_that_is_none_is_refused_without_the_name_of_an_rpc(pulse: CommandLine, topic: str) -> None:
    result = pulse("jobs", "retry", "--topic", topic, "--error-group", "KeyError", "--yes")
    assert result.code == 2
    assert "--error-group 'KeyError' is not the id of a group of dead letters, such as '3201d5" in result.err


def test_result_of_a_bulk_action_names_the_command_that_undoes_it(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    stored(topic)
    result = plain_text(pulse("jobs", "prioritize", "--topic", topic, "--priority", "7", "--yes").out)
    assert "Undo with: pulse undo " in result
    undone = pulse("undo", result.split()[-1], "--yes", "-o", "json").json
    assert (undone["undone"], undone["skipped"]) == (1, 0)
