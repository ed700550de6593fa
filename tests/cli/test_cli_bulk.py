"""`pulse jobs cancel` and `retry` for all jobs that match."""

from pulse_cli.jobs.bulk import passed_over
from tests.cli.buried_jobs import bury, statuses, untouched
from tests.cli.command_line import CommandLine, ended, plain_text
from tests.rows import each_row
from tools.cli_shapes import SHAPES

# ---------------------------------------------------------------- retry


def test_dry_run_counts_shows_and_changes_nothing(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 7)
    result = own("jobs", "retry", "--topic", topic, "--dry-run")
    assert result.code == 0
    assert f"7 DEAD_LETTERED jobs on {topic} would be retried." in result.out
    assert result.out.count("connection refused") == 3
    shape = own("jobs", "retry", "--topic", topic, "--dry-run", "-o", "json").json
    assert (shape["matched"], shape["changed"], shape["dry_run"]) == (7, 0, True)
    assert untouched(own_database, topic) == 7


def test_pipe_without_yes_is_refused_with_the_count(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 7)
    result = own("jobs", "retry", "--topic", topic)
    assert (result.code, result.out) == (2, "")
    assert f"Retry 7 DEAD_LETTERED jobs on {topic}?" in result.err
    assert "--yes" in result.err
    assert untouched(own_database, topic) == 7


def test_terminal_shows_the_newest_and_takes_no_for_an_answer(
    own: CommandLine, own_database: str, topic: str
) -> None:
    bury(own_database, topic, 7)
    with own.terminal("jobs", "retry", "--topic", topic, columns=140) as child:
        child.expect(r"\? \[y/N\]: ")
        assert plain_text(child.before).count("connection refused") == 3
        child.sendline("n")
        assert ended(child) == 1
        assert "nothing was changed" in child.before
    assert untouched(own_database, topic) == 7


def test_terminal_shows_a_bar_and_the_outcome(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 1200)
    result = own.screen("jobs", "retry", "--topic", topic, "--yes")
    assert result.code == 0
    assert "━" in result.out
    assert f"1,200 DEAD_LETTERED jobs on {topic} were retried." in plain_text(result.out)
    assert statuses(own_database, topic) == {"PENDING": 1200}


def test_retry_grants_attempts(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 1)
    result = own("jobs", "retry", "--topic", topic, "--attempts", "3", "--yes")
    assert f"1 DEAD_LETTERED job on {topic} was retried." in result.out
    (job,) = own("jobs", "list", "--topic", topic, "-o", "json").json
    assert job["max_attempts"] == 4


def test_filters_meet_what_they_say_and_nothing_else(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 20, "connection refused", apart="10 minutes")
    bury(own_database, topic, 20, "card refused", apart="10 minutes")
    options = ["--topic", topic, "--error", "CONNECTION", "--since", "105m", "--yes"]
    result = own("jobs", "retry", *options, "-o", "json")
    assert (result.json["matched"], result.json["changed"], result.json["complete"]) == (10, 10, True)
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("An action on all"))
    assert list(result.json) == list(documented)
    assert statuses(own_database, topic) == {"PENDING": 10, "DEAD_LETTERED": 30}
    assert (
        own("jobs", "retry", "--topic", topic, "--before", "4h", "--dry-run", "-o", "json").json["matched"]
        == 0
    )


def test_canceled_jobs_come_back_only_when_asked_for(own: CommandLine, topic: str) -> None:
    own("submit", topic, "--count", "3")
    own("jobs", "cancel", "--topic", topic, "--yes")
    assert "There are no DEAD_LETTERED jobs" in own("jobs", "retry", "--topic", topic, "--yes").out
    result = own("jobs", "retry", "--topic", topic, "--status", "CANCELED", "--yes")
    assert f"3 CANCELED jobs on {topic} were retried." in result.out


# ---------------------------------------------------------------- cancel


def test_cancel_meets_all_that_has_not_finished(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 2)
    own("submit", topic, "--count", "3")
    own("submit", topic, "--delay", "1h")
    result = own("jobs", "cancel", "--topic", topic, "--yes", "--reason", "wrong file")
    assert result.code == 0
    assert f"4 jobs on {topic} were canceled." in result.out
    assert "4 of 4 canceled" in result.err
    assert statuses(own_database, topic) == {"CANCELED": 4, "DEAD_LETTERED": 2}
    found = own("jobs", "list", "--topic", topic, "--status", "CANCELED", "-o", "json").json
    assert {job["last_error"] for job in found} == {"wrong file"}


def test_cancel_shows_the_count_of_each_status(own: CommandLine, topic: str) -> None:
    own("submit", topic, "--count", "3")
    shown = own("jobs", "cancel", "--topic", topic, "--dry-run").out
    assert shown.splitlines()[:2] == [f"3 jobs on {topic} would be canceled.", "3 PENDING"]


def test_no_match_is_not_a_failure(own: CommandLine, topic: str) -> None:
    result = own("jobs", "cancel", "--topic", topic)
    assert result.code == 0
    assert f"There are no jobs on {topic}" in result.out


@each_row(
    "options, sentence",
    [
        (["cancel"], "Give the jobs to cancel"),
        (["retry"], "Give the jobs to retry"),
        (["retry", "--yes"], "Give the jobs to retry"),
        (["retry", "--status", "RUNNING"], "only DEAD_LETTERED, CANCELED jobs can"),
        (["cancel", "--status", "COMPLETED"], "only PENDING, RUNNING, RETRYING jobs can"),
        (["cancel", "0199c0de", "--topic", "t"], "not both"),
        (["retry", "0199c0de", "--dry-run"], "not both"),
        (["delete"], "Give the jobs to delete"),
        (["delete", "--topic", "t"], "--status of the jobs to delete: COMPLETED, DEAD_LETTERED, CANCELED"),
        (["delete", "--status", "RUNNING"], "only COMPLETED, DEAD_LETTERED, CANCELED jobs can"),
        (["prioritize", "--priority", "1"], "Give the jobs to prioritize"),
        (["prioritize", "--topic", "t"], "--priority"),
        (
            ["prioritize", "--status", "CANCELED", "--priority", "1"],
            "only PENDING, RUNNING, RETRYING jobs can",
        ),
        (["prioritize", "0199c0de", "--metadata", "a=b", "--priority", "1"], "not both"),
        (["cancel", "--error-group", "86194952523c"], "only PENDING, RUNNING, RETRYING jobs can"),
        (["list", "--metadata", "tenant"], "name=value"),
    ],
)
def test_misuse_is_a_sentence_before_any_call(alone: CommandLine, options: list[str], sentence: str) -> None:
    result = alone("jobs", *options)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err


def test_server_that_is_gone_is_5(alone: CommandLine) -> None:
    result = alone("jobs", "retry", "--topic", "t", "--yes", "--addr", "127.0.0.1:1", "--timeout", "200ms")
    assert (result.code, result.out) == (5, "")


def test_jobs_left_in_canceled_workflows_are_counted_and_named() -> None:
    assert passed_over(in_canceled_workflows=2, canceled_workflows=["0199-a", "0199-b"]) == (
        " 2 were left as they are: they wait for other jobs of workflows that were canceled. "
        "Retry the workflow: pulse workflows retry 0199-a; pulse workflows retry 0199-b."
    )
