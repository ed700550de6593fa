"""`pulse dead-letters`, and what can be done with a group."""

from __future__ import annotations

from tests.cli.buried_jobs import bury, sql, statuses
from tests.cli.command_line import CommandLine, until
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES

GROUP = "86194952523c"


def test_topic_without_dead_letters_says_so(own: CommandLine, topic: str) -> None:
    assert f"There are no dead letters on {topic}." in own("dead-letters", "--topic", topic).err
    assert own("dead-letters", "--topic", topic, "-o", "json").json == []


def test_group_shows_its_cause_first_and_a_job_the_whole_chain(
    own: CommandLine, own_database: str, topic: str
) -> None:
    error = "RenderFailed: page 3 [cause: OSError: gone]\n\n  File 'a'\n\nCaused by OSError: gone\n  File 'b'"
    bury(own_database, topic, 1, error)
    command = ["dead-letters", "--topic", topic]
    (group,) = until(own, command, lambda found: len(found) == 1)
    assert "OSError: gone (from RenderFailed: page 3)" in own(*command).out
    shown = own("jobs", "get", group["sample"]["id"]).out
    assert "RenderFailed: page 3 [cause: OSError: gone]" in shown
    assert "Caused by OSError: gone" in shown


def test_groups_are_listed_and_retried_by_their_id(own: CommandLine, own_database: str, topic: str) -> None:
    bury(own_database, topic, 3, "KeyError: 'a'\n\n  File 'x'")
    sql(own_database, "UPDATE pulse.jobs SET error_group = $2 WHERE topic = $1", topic, GROUP)
    bury(own_database, topic, 2, "from before")

    command = ["dead-letters", "--topic", topic]
    newest, other = sorted(
        until(own, command, lambda found: len(found) == 2), key=lambda group: group["count"], reverse=True
    )
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A group of dead letters"))
    assert list(newest) == list(documented)
    assert (newest["error_group"], newest["count"], other["error_group"]) == (GROUP, 3, "none")
    assert {len(row) for row in own(*command, "-o", "plain").rows} == {len(PLAIN["`dead-letters`"])}
    shown = own(*command).out
    assert "KeyError: 'a'" in shown
    assert "TOPIC" not in shown
    assert "1 more groups are not shown" in own(*command, "--limit", "1").err

    result = own("jobs", "retry", "--topic", topic, "--error-group", GROUP, "--yes")
    assert f"3 DEAD_LETTERED jobs on {topic}, of the group {GROUP} were retried." in result.out
    assert own("jobs", "list", "--topic", topic, "--error-group", "none", "-o", "plain").out.count("\n") == 2
    assert statuses(own_database, topic) == {"PENDING": 3, "DEAD_LETTERED": 2}
