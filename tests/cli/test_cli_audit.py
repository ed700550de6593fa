"""`pulse audit`, `--reason`, and the cancel of a job as `jobs get` shows it."""

import pulse as sdk
from tests.cli.command_line import CommandLine


def test_change_of_a_setting_shows_its_old_and_new_value(pulse: CommandLine, topic: str) -> None:
    pulse("topics", "set", topic, "--running", "5", "--reason", "ticket 7")
    pulse("topics", "set", topic, "--running", "2")
    shown = pulse("audit", "--topic", topic).out
    assert "running 5 → 2" in shown
    assert "ticket 7" in shown
    last, first = pulse("audit", "--topic", topic, "-o", "json").json
    assert last["changes"] == {"running": {"old": 5, "new": 2}}
    assert (first["reason"], first["method"], first["count"]) == ("ticket 7", "SetTopic", 1)


def test_bulk_action_is_one_entry(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--count", "1200")
    pulse("jobs", "cancel", "--topic", topic, "--yes", "--reason", "wrong list")
    pulse("jobs", "delete", "--topic", topic, "--status", "CANCELED", "--yes", "--reason", "tidy up")
    deleted, canceled = pulse("audit", "--topic", topic, "-o", "json").json
    assert (canceled["method"], canceled["count"], canceled["reason"]) == ("CancelJobs", 1200, "wrong list")
    assert (deleted["method"], deleted["count"], deleted["reason"]) == ("DeleteJobs", 1200, "tidy up")
    assert len(canceled["ids"]) == 64
    assert pulse("audit", "--id", canceled["action_id"], "-o", "json").json == [canceled]


def test_command_with_several_ids_is_one_entry_and_is_undone_at_once(pulse: CommandLine, topic: str) -> None:
    jobs = [pulse("submit", topic, "-o", "plain").rows[0][0] for _ in range(3)]
    for command in (["cancel"], ["retry"], ["prioritize", "--priority", "3"]):
        result = pulse("jobs", command[0], *jobs, *command[1:], "--reason", "wrong list")
        (entry,) = pulse("audit", "--topic", topic, "--method", f"{command[0].title()}Job", "-o", "json").json
        assert (entry["count"], entry["reason"], sorted(entry["ids"])) == (3, "wrong list", sorted(jobs))
        assert f"Undo with: pulse undo {entry['action_id']}" in result.err
    assert "3 jobs were undone." in pulse("undo", entry["action_id"], "--yes").out
    pulse("jobs", "cancel", *jobs)

    result = pulse("jobs", "delete", *jobs)

    (entry,) = pulse("audit", "--id", jobs[0], "--method", "DeleteJob", "-o", "json").json
    assert (entry["count"], "Undo" in result.err) == (3, False)


def test_canceled_job_shows_by_whom_and_why_and_no_error(pulse: CommandLine, topic: str) -> None:
    (job,) = pulse("submit", topic, "-o", "plain").rows[0]
    pulse("jobs", "cancel", job, "--reason", "wrong price list")
    shown = pulse("jobs", "get", job).out
    assert "Canceled" in shown
    assert ": wrong price list" in shown
    assert "Last error" not in shown


def test_reason_of_a_schedule_is_kept(pulse: CommandLine, topic: str) -> None:
    pulse("schedules", "create", topic, "--every", "1h", "--name", topic, "--reason", "new report")
    pulse("schedules", "pause", topic, "--reason", "holidays")
    pulse("schedules", "delete", topic, "--yes", "--reason", "no longer needed")
    entries = pulse("audit", "--topic", topic, "-o", "json").json
    assert [entry["reason"] for entry in entries] == ["no longer needed", "holidays", "new report"]
    assert entries[1]["changes"] == {"paused": {"old": False, "new": True}}


def test_no_entry_is_a_sentence(pulse: CommandLine) -> None:
    assert "There are no such changes." in pulse("audit", "--topic", "nothing-happened-here").err


def test_id_that_is_none_is_refused(pulse: CommandLine) -> None:
    refused = pulse("audit", "--id", "4711")
    assert "'4711' is not" in refused.err


def test_cancel_of_a_workflow_names_the_workflow(pulse: CommandLine, topic: str, address: str) -> None:
    with sdk.SyncPulse(address) as client, client.workflow(topic) as flow:
        flow.add(topic, name="load")
    pulse("workflows", "cancel", flow.handle.id, "--yes", "--reason", "wrong day")
    assert f"workflow {flow.handle.id}" in pulse("audit", "--topic", topic).out


def test_long_change_does_not_widen_the_table_of_a_pipe(pulse: CommandLine, topic: str) -> None:
    pulse("schedules", "create", topic, "--every", "1h", "--name", topic)
    shown = pulse("audit", "--topic", topic).out
    assert "…" in shown
    assert max(map(len, shown.splitlines())) < 250
