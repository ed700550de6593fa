"""`pulse jobs prioritize` and `pulse jobs delete`, by id and for all that match."""

from __future__ import annotations

import re

from tests.cli.buried_jobs import bury, sql, statuses
from tests.cli.command_line import CommandLine, ended


def test_named_jobs_get_another_priority(pulse: CommandLine, topic: str) -> None:
    first, second = pulse("submit", topic, "--count", "2", "-o", "plain").out.split()

    result = pulse("jobs", "prioritize", first, second, "--priority", "7")

    assert result.code == 0
    assert f"{first} on {topic} now has priority 7." in result.out
    assert pulse("jobs", "get", second, "-o", "json").json["priority"] == 7


def test_all_that_match_get_another_priority(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--metadata", "tenant=acme", "--count", "3")
    pulse("submit", topic, "--metadata", "tenant=other")
    options = ["--topic", topic, "--metadata", "tenant=acme", "--priority", "-1", "--yes"]

    result = pulse("jobs", "prioritize", *options)

    assert f"3 jobs on {topic}, with tenant=acme were prioritized." in result.out
    listed = pulse("jobs", "list", "--topic", topic, "-o", "json").json
    assert sorted(job["priority"] for job in listed) == [-1, -1, -1, 0]


def test_named_jobs_are_deleted_and_others_refuse(pulse: CommandLine, topic: str) -> None:
    done, waiting = pulse("submit", topic, "--count", "2", "-o", "plain").out.split()
    pulse("jobs", "cancel", done)

    result = pulse("jobs", "delete", waiting, done, "-o", "json")

    assert (result.code, result.json) == (1, [{"id": done}])
    assert "Cancel it first." in result.err
    assert [job["id"] for job in pulse("jobs", "list", "--topic", topic, "-o", "json").json] == [waiting]


def test_delete_of_all_that_match_asks_first(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 7)
    command = ["jobs", "delete", "--topic", topic, "--status", "DEAD_LETTERED"]
    with own.terminal(*command, columns=140) as child:
        child.expect(rf"Delete 7 DEAD_LETTERED jobs on {topic}\? ")
        child.sendline("n")
        assert ended(child) == 1
    assert statuses(own_database, topic) == {"DEAD_LETTERED": 7}

    assert f"7 DEAD_LETTERED jobs on {topic} were deleted." in own(*command, "--yes").out
    assert statuses(own_database, topic) == {}


def test_completed_jobs_are_deleted_without_a_count(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 1200)
    sql(own_database, "UPDATE pulse.jobs SET status = 'COMPLETED', ended_as = NULL WHERE topic = $1", topic)
    command = ["jobs", "delete", "--topic", topic, "--status", "COMPLETED"]

    assert re.search("all COMPLETED jobs on .* would be deleted", own(*command, "--dry-run").out)
    assert "add --yes" in own(*command).err
    result = own(*command, "--yes", "-o", "json")

    assert (result.json["matched"], result.json["changed"], result.json["complete"]) == (None, 1200, True)
    assert statuses(own_database, topic) == {}
    assert "Nothing was deleted" in own(*command, "--yes").out
