"""`pulse workflows`, piped and at a terminal, and workflows in `jobs` and `topics`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pulse as sdk
from tests.cli.command_line import CommandLine, ended, plain_text, until
from tests.rows import each_row
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES

UNKNOWN = "0199c0de-0000-7000-8000-000000000001"
DOCUMENTED = next(shape for title, shape in SHAPES.items() if title.startswith("A workflow, in"))

Job = tuple[str, str, list[str], Any]
Start = Callable[..., str]


@pytest.fixture
def start(address: str) -> Iterator[Start]:
    """Stores a workflow, jobs as (name, topic, names of parents, condition), and returns its id."""
    with sdk.SyncPulse(address) as client:

        def store(name: str, *jobs: Job) -> str:
            with client.workflow(name) as flow:
                for job, topic, after, when in jobs:
                    flow.add(topic, name=job, after=after, when=when)
            return flow.handle.id

        yield store


def nightly(topic: str) -> list[Job]:
    """Two extracts, a load after both, and a notice in any case. No worker runs them."""
    return [
        ("extract-mon", topic, [], "succeeded"),
        ("extract-tue", topic, [], "succeeded"),
        ("load", topic, ["extract-mon", "extract-tue"], "succeeded"),
        ("notify", topic, ["load"], "always"),
    ]


def job_ids(pulse: CommandLine, workflow: str) -> dict[str, str]:
    return {
        job["name"]: job["id"] for job in pulse("workflows", "get", workflow, "-o", "json").json["job_list"]
    }


# ---------------------------------------------------------------- list


def test_list_is_newest_first_and_filtered(pulse: CommandLine, topic: str, start: Start) -> None:
    first, second = start(topic, *nightly(topic)), start(topic, *nightly(topic))
    start(f"{topic}-other", *nightly(topic))
    found = pulse("workflows", "list", "--name", topic, "-o", "json").json
    assert [workflow["id"] for workflow in found] == [second, first]
    assert list(found[0]) == [key for key in DOCUMENTED if key != "job_list"]
    assert (found[0]["status"], found[0]["jobs"], found[0]["unfinished"]) == ("running", 4, 4)
    (row,) = pulse("workflows", "list", "--name", topic, "--limit", "1", "-o", "plain").rows
    assert (row[0], len(row)) == (second, len(PLAIN["`workflows list`"]))
    shown = pulse("workflows", "list", "--name", topic, "--status", "running")
    assert f"{first}  0 of 4 done" in shown.out
    header = pulse("workflows", "list", "--limit", "1").out.splitlines()[0].split()
    assert header == ["ID", "NAME", "STATUS", "PROGRESS", "AGE", "TOOK"]


def test_list_pages_by_cursor(pulse: CommandLine, topic: str, start: Start) -> None:
    ids = [start(topic, ("a", topic, [], "succeeded")) for _ in range(3)]
    first = pulse("workflows", "list", "--name", topic, "--limit", "2", "-o", "plain")
    cursor = first.err.split()[-1]
    rest = pulse("workflows", "list", "--name", topic, "--cursor", cursor, "-o", "plain")
    assert [row[0] for row in first.rows + rest.rows] == ids[::-1]
    assert [
        row[0] for row in pulse("workflows", "list", "--name", topic, "--all", "-o", "plain").rows
    ] == ids[::-1]


def test_empty_list_is_a_sentence(pulse: CommandLine, topic: str) -> None:
    result = pulse("workflows", "list", "--name", topic, "--status", "failed")
    assert (result.code, result.out) == (0, "")
    assert f"There are no failed workflows named '{topic}'." in result.err
    assert pulse("workflows", "list", "--name", topic, "-o", "json").json == []
    assert pulse("workflows", "list", "--status", "broken").code == 2


# ---------------------------------------------------------------- get


def test_get_shows_the_tree(pulse: CommandLine, topic: str, start: Start) -> None:
    workflow = start("nightly", *nightly(topic))
    lines = pulse("workflows", "get", workflow).out.splitlines()
    assert lines[0] == f"{workflow}  running"
    assert lines[1].split() == ["Name", "nightly"]
    assert "0 of 4 done" in lines[2]
    ids = job_ids(pulse, workflow)
    assert lines[-4].startswith("○ extract-mon ")
    assert "waits for a worker" in lines[-4]
    assert lines[-2].startswith("└─ ○ load ")
    assert "waits for 2 of 2" in lines[-2]
    assert "after extract-mon, extract-tue" in lines[-2]
    assert lines[-1].startswith("   └─ ○ notify ")
    assert "in any case" in lines[-1]
    assert [line.split()[-1] for line in lines[-4:]] == list(ids.values())


def test_json_of_a_workflow_has_the_documented_keys(pulse: CommandLine, topic: str, start: Start) -> None:
    found = pulse("workflows", "get", start("nightly", *nightly(topic)), "-o", "json").json
    assert list(found) == list(DOCUMENTED)
    assert list(found["job_list"][0]) == list(DOCUMENTED["job_list"][0])
    assert [job["parents"] for job in found["job_list"]] == [[], [], [1, 2], [3]]


def test_thousands_of_jobs_are_a_few_lines(pulse: CommandLine, topic: str, start: Start) -> None:
    pages = [f"page-{number}" for number in range(2_500)]
    workflow = start(
        "crawl",
        ("split", topic, [], "succeeded"),
        *((page, topic, ["split"], "succeeded") for page in pages),
        ("collect", topic, pages, "succeeded"),
    )
    lines = pulse("workflows", "get", workflow).out.splitlines()
    assert "page × 2,500" in lines[-2]
    assert "2,500 waiting" in lines[-2]
    assert "waits for 2,500 of 2,500" in lines[-1]
    assert len(pulse("workflows", "get", workflow, "--all").out.splitlines()) > 2_500
    assert len(pulse("workflows", "get", workflow, "-o", "json").json["job_list"]) == 2_502
    collect = job_ids(pulse, workflow)["collect"]
    assert "waits for 2,500 of 2,500: page-0 (waits for 1 of 1), " in pulse("jobs", "get", collect).out
    pulse("workflows", "cancel", workflow, "--yes")


@pytest.mark.parametrize("columns", [50, 80, 160])
def test_tree_at_a_terminal(pulse: CommandLine, topic: str, start: Start, columns: int) -> None:
    workflow = start("nightly", *nightly(topic))
    result = pulse.screen("workflows", "get", workflow, columns=columns)
    lines = plain_text(result.out).splitlines()
    assert max(len(line) for line in lines[lines.index("Jobs") :]) <= columns
    assert "\x1b[34mrunning" in result.out
    assert "\x1b[" not in pulse.screen("workflows", "get", workflow, NO_COLOR="1").out


def test_workflow_is_found_by_a_prefix(pulse: CommandLine, topic: str, start: Start) -> None:
    workflow = start("nightly", *nightly(topic))
    assert pulse("workflows", "get", workflow[:34], "-o", "json").json["id"] == workflow
    assert pulse("workflows", "get", workflow.replace("-", "")[:30], "-o", "json").json["id"] == workflow


@each_row(
    "typed, code, sentence",
    [
        ("0000c0de", 3, "no workflow whose id starts with '0000c0de'"),
        ("019", 2, "too short for a prefix"),
        ("nonsense", 2, "is not the id of a workflow: copy one from `pulse workflows list`"),
        (UNKNOWN + "0", 2, "is not the id of a workflow"),
        (UNKNOWN, 3, "See: pulse workflows list"),
    ],
)
def test_workflow_that_is_not_there(pulse: CommandLine, typed: str, code: int, sentence: str) -> None:
    for command in (["get"], ["watch"], ["cancel", "--yes"], ["retry"]):
        result = pulse("workflows", *command, typed)
        assert (result.code, result.out) == (code, "")
        assert sentence in result.err


# ---------------------------------------------------------------- watch


def test_watch_ends_with_the_workflow(working: CommandLine, start: Start) -> None:
    workflow = start("good", ("a", "ok", [], "succeeded"), ("b", "ok", ["a"], "succeeded"))
    result = working("workflows", "watch", workflow)
    assert result.code == 0
    assert "succeeded: 2 of 2 done\n" in result.out
    assert "└─ ✓ b" in result.out
    shapes = [
        json.loads(line) for line in working("workflows", "watch", workflow, "-o", "json").out.splitlines()
    ]
    assert [shape["status"] for shape in shapes] == ["succeeded"]
    assert working("workflows", "watch", workflow, "-o", "plain").rows == [
        [workflow, "succeeded", "2 of 2 done"]
    ]


def test_watch_of_a_failed_workflow_exits_with_1(working: CommandLine, start: Start) -> None:
    workflow = start(
        "bad",
        ("a", "fatal", [], "succeeded"),
        ("b", "ok", ["a"], "succeeded"),
        ("c", "ok", ["a"], "failed"),
        ("d", "ok", ["c"], "failed"),
    )
    with working.terminal("workflows", "watch", workflow, columns=100) as child:
        assert ended(child) == 1
        shown = plain_text(child.before)
    assert "failed: it cannot be done" in shown
    assert "canceled: " in shown
    assert "skipped: not needed" in shown
    assert "1 of 4 done, 1 failed, 1 canceled, 1 skipped" in shown


def test_watch_at_a_terminal_is_redrawn_until_the_end(pulse: CommandLine, topic: str, start: Start) -> None:
    workflow = start("nightly", *nightly(topic))
    with pulse.terminal("workflows", "watch", workflow, columns=100) as child:
        child.expect("waits for 2 of 2")
        child.expect("Ctrl-C ends it")
        pulse("workflows", "cancel", workflow, "--yes", "--reason", "wrong day")
        child.expect("wrong day")
        assert ended(child) == 1


def test_watch_ends_with_ctrl_c(pulse: CommandLine, topic: str, start: Start) -> None:
    with pulse.terminal("workflows", "watch", start("nightly", *nightly(topic))) as child:
        child.expect("Ctrl-C ends it")
        child.sendintr()
        assert ended(child) == 130
        assert "Traceback" not in child.before


# ---------------------------------------------------------------- cancel, retry


def test_cancel_asks_and_retry_brings_back_what_was_canceled(
    pulse: CommandLine, topic: str, start: Start
) -> None:
    workflow = start("nightly", *nightly(topic))
    unasked = pulse("workflows", "cancel", workflow)
    assert unasked.code == 2
    assert f"Cancel nightly ({workflow}) with 4 unfinished jobs?" in unasked.err
    with pulse.terminal("workflows", "cancel", workflow, columns=150) as child:
        child.expect("unfinished jobs\\?")
        child.sendline("n")
        child.expect("nothing was changed")
    done = pulse("workflows", "cancel", workflow[:34], "--yes", "--reason", "wrong day")
    assert done.code == 0
    assert done.out.startswith(f"Canceled nightly ({workflow}) with 4 unfinished jobs. Retry it with: ")
    until(pulse, ["workflows", "get", workflow], lambda found: found["status"] == "canceled")
    assert "wrong day" in pulse("workflows", "get", workflow).out
    retried = pulse("workflows", "retry", workflow, "--attempts", "2")
    assert retried.out == (
        f"Retried nightly ({workflow}) with 4 jobs that failed or were canceled. "
        "Completed jobs do not run again.\n"
    )
    found = until(pulse, ["workflows", "get", workflow], lambda found: found["unfinished"] == 4)
    assert [job["state"] for job in found["job_list"][:3]] == ["ready", "ready", "waiting"]


def test_workflow_that_succeeded_is_neither_canceled_nor_retried(working: CommandLine, start: Start) -> None:
    workflow = start("good", ("a", "ok", [], "succeeded"))
    assert working("workflows", "watch", workflow).code == 0
    canceled = working("workflows", "cancel", workflow, "--yes")
    assert (canceled.code, canceled.out) == (1, "")
    assert f"good ({workflow}) has ended: it is succeeded. Nothing was canceled." in canceled.err
    retried = working("workflows", "retry", workflow)
    assert f"no job of good ({workflow}) failed or was canceled" in retried.out + retried.err


# ---------------------------------------------------------------- jobs and topics


def test_job_that_waits_says_for_what(pulse: CommandLine, topic: str, start: Start) -> None:
    workflow = start("nightly", *nightly(topic))
    ids = job_ids(pulse, workflow)
    shown = pulse("jobs", "get", ids["load"]).out
    assert "waits for 2 of 2: extract-mon (waits for a worker), extract-tue (waits for a worker)\n" in shown
    assert f"nightly ({workflow})" in shown
    assert "Next run" not in shown
    pulse("jobs", "cancel", ids["extract-mon"])
    (load,) = [
        job for job in pulse("jobs", "list", "--topic", topic, "-o", "json").json if job["id"] == ids["load"]
    ]
    assert load["workflow_id"] == workflow


def test_list_and_topics_tell_jobs_that_wait_for_jobs_apart(
    pulse: CommandLine, topic: str, start: Start
) -> None:
    workflow = start("nightly", *nightly(topic))
    assert pulse("jobs", "list", "--topic", topic).out.count("waits for ") == 2
    (found,) = until(pulse, ["topics", "--search", topic], lambda topics: topics and topics[0]["ready"] == 2)
    assert (found["waiting"], found["waiting_for_jobs"]) == (0, 2)
    header, row = pulse("topics", "--search", topic).out.splitlines()
    assert "FOR JOBS" in header
    assert row.split()[4] == "2"
    pulse("workflows", "cancel", workflow, "--yes")
    command = ["topics", "--search", topic]
    until(pulse, command, lambda topics: topics and topics[0]["canceled"] == 4)
    assert "FOR JOBS" not in pulse(*command).out


def test_delete_of_many_leaves_jobs_of_an_unfinished_workflow(
    pulse: CommandLine, topic: str, start: Start
) -> None:
    ids = job_ids(pulse, start("nightly", *nightly(topic)))
    pulse("jobs", "cancel", ids["extract-mon"])
    deleted = pulse("jobs", "delete", "--topic", topic, "--status", "CANCELED", "--yes").out
    assert "were left as they are: their workflow has not ended." in deleted
