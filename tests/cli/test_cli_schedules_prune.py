"""`pulse schedules prune`: schedules that have vanished from the code of an application."""

from collections.abc import Callable
from datetime import timedelta

import pytest

import pulse as sdk
from tests.cli.command_line import CommandLine, ended

Declare = Callable[..., None]


@pytest.fixture
def declare(address: str, topic: str) -> Declare:
    """Starts an application whose code declares these schedules."""

    def start(*names: str, application: str = topic) -> None:
        with sdk.SyncPulse(address, application=application) as p:
            for name in names:
                p.every(topic, timedelta(hours=1), name=name)
            p.declare()

    return start


@pytest.fixture
def vanished(declare: Declare, topic: str) -> str:
    """The name of a schedule that has vanished from the code of the application `topic`."""
    declare(f"kept-{topic}", f"gone-{topic}")
    declare(f"kept-{topic}")
    return f"gone-{topic}"


def test_dry_run_lists_and_changes_nothing(pulse: CommandLine, topic: str, vanished: str) -> None:
    rows = pulse("schedules", "prune", "--declared-by", topic, "--dry-run", "-o", "plain").rows
    assert [row[1] for row in rows] == [vanished]
    assert f"{topic} (not any more)" in pulse.screen("schedules", "list", "--all", columns=200).out
    assert pulse("schedules", "get", vanished).code == 0


def test_prune_in_a_pipe_requires_yes(pulse: CommandLine, topic: str, vanished: str) -> None:
    result = pulse("schedules", "prune", "--declared-by", topic)
    assert (result.code, "add --yes" in result.err) == (2, True)
    (pruned,) = pulse("schedules", "prune", "--declared-by", topic, "--yes", "-o", "json").json
    assert (pruned["name"], pruned["declared_by"]) == (vanished, topic)
    assert pruned["vanished_at"] is not None
    assert pulse("schedules", "get", vanished).code == 3
    assert pulse("schedules", "get", f"kept-{topic}").code == 0


def test_prune_shows_them_and_asks_first(pulse: CommandLine, topic: str, vanished: str) -> None:
    with pulse.terminal("schedules", "prune", "--declared-by", topic) as child:
        child.expect(vanished)
        child.expect("Delete this schedule, which .* no longer declares")
        child.sendline("n")
        assert ended(child) == 1
    assert pulse("schedules", "get", vanished).code == 0
    with pulse.terminal("schedules", "prune", "--declared-by", topic) as child:
        child.expect("Delete this schedule")
        child.sendline("y")
        child.expect(f"Deleted {vanished}")
        assert ended(child) == 0


def test_schedule_that_is_declared_again_is_not_pruned(
    pulse: CommandLine, declare: Declare, topic: str, vanished: str
) -> None:
    with pulse.terminal("schedules", "prune", "--declared-by", topic) as child:
        child.expect("Delete this schedule")
        declare(f"kept-{topic}", vanished)
        child.sendline("y")
        child.expect("declared again meanwhile")
        assert ended(child) == 0
    assert pulse("schedules", "get", vanished).code == 0


def test_nothing_to_prune_is_a_sentence(pulse: CommandLine, declare: Declare, topic: str) -> None:
    declare(f"kept-{topic}")
    result = pulse("schedules", "prune", "--declared-by", topic, "--yes")
    assert (result.code, result.err.strip()) == (0, f"No schedule has vanished from the code of {topic}.")


def test_missing_application_names_those_there_are(pulse: CommandLine, topic: str, vanished: str) -> None:
    result = pulse("schedules", "prune")
    assert result.code == 2
    assert "--declared-by APP" in result.err
    assert f"{topic} (1)" in result.err
