"""`pulse topics set`, `show` and `reset`: the settings of a topic, who decides each, and how they go back."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import grpc

from pulse.topic_settings import ENTRIES
from pulse.topics import entries_message
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.cli.command_line import CommandLine
from tests.rows import each_row

BACKOFF = "first=2s,factor=3,longest=6h,jitter=0.1"
OF_SERVER = {
    "max_attempts": 25,
    "backoff": "first=1s,factor=2,longest=2h,jitter=0.2",
    "max_crashes": 5,
    "keep_completed": "7d",
    "keep_canceled": "7d",
    "keep_dead_lettered": "30d",
}


def declare(address: str, topic: str, worker_id: str = "syncer-1", **entries: Any) -> None:
    declared = [pb.DeclaredTopic(topic=topic, entries=entries_message(entries))]
    with grpc.insecure_channel(address) as channel:
        PulseServiceStub(channel).DeclareTopics(pb.DeclareTopicsRequest(worker_id=worker_id, topics=declared))


def row_of(shown: str, entry: str) -> list[str]:
    """Return the words of the row of an entry."""
    (row,) = [line.split() for line in shown.splitlines() if line.split()[:1] == [entry]]
    return row


def test_settings_of_the_server_come_first(pulse: CommandLine) -> None:
    first, *_ = pulse("topics", "show", "-o", "json").json
    assert first["topic"] is None
    assert first["in_force"] == dict.fromkeys(ENTRIES) | OF_SERVER
    table = pulse.screen("topics", "show", columns=200).out
    assert "(all others)" in table
    assert "1s, then ×2, up to 2h, ±20%" in table


def test_settings_are_set_together_shown_and_handed_back(pulse: CommandLine, topic: str) -> None:
    limits = ["--running", "5", "--rate", "100/min", "--aging", "5m"]
    runs = ["--max-attempts", "40", "--backoff", BACKOFF, "--attempt-timeout", "2m", "--max-crashes", "2"]
    shown = pulse("topics", "set", topic, *limits, *runs, "--keep-completed", "forever").out
    for words in (topic, "IN FORCE", "OPERATOR", "CODE", "SERVER", "100/min", "2s, then ×3, up to 6h, ±10%"):
        assert words in shown
    assert row_of(shown, "keep-completed") == ["keep-completed", "forever", "operator", "forever", "–", "7d"]
    assert f"until it is handed back: pulse topics reset {topic}" in shown

    known = pulse("topics", "show", topic, "-o", "json").json
    own = {
        "running": 5,
        "rate": "100/min",
        "aging": "5m",
        "max_attempts": 40,
        "backoff": BACKOFF,
        "attempt_timeout": "2m",
        "max_crashes": 2,
        "keep_completed": "forever",
    }
    assert known["operator"] == dict.fromkeys(ENTRIES) | own
    assert known["in_force"] == dict.fromkeys(ENTRIES) | OF_SERVER | own | {"turns": True}
    assert (known["decided_by"]["running"], known["decided_by"]["keep_canceled"]) == ("operator", "server")
    assert known["set_at"] is not None
    rows = {row[0]: row for row in pulse("topics", "show", "-o", "plain").rows}
    assert rows[topic][1:3] == ["5", "100/min"]
    assert "running 5, rate 100/min" in pulse.screen("topics", "show", columns=300).out

    one = pulse("topics", "set", topic, "--max-attempts", "default", "-o", "json").json
    assert (one["operator"]["max_attempts"], one["in_force"]["max_attempts"]) == (None, 25)
    assert one["operator"]["attempt_timeout"] == "2m"
    two = pulse("topics", "reset", topic, "aging", "max-crashes", "attempt_timeout", "-o", "json").json
    left = ("running", "rate", "backoff", "keep_completed")
    assert [name for name, value in two["operator"].items() if value is not None] == list(left)
    back = pulse("topics", "reset", topic, "-o", "json").json
    assert (set(back["operator"].values()), back["set_at"]) == ({None}, None)
    assert back["before"] == {"keep_completed": "forever"}, "7d is shorter: not at once"


def test_topic_that_is_as_the_servers_again_is_not_listed(pulse: CommandLine, topic: str) -> None:
    pulse("topics", "set", topic, "--keep-completed", "1d", "--no-turns", "--ordered", "--max-attempts", "3")
    known = pulse("topics", "show", topic, "-o", "json").json
    assert (known["operator"]["turns"], known["operator"]["ordered"]) == (False, True)
    back = pulse("topics", "reset", topic, "-o", "json").json
    assert (back["in_force"]["keep_completed"], back["before"]) == ("7d", {}), "longer: at once"
    assert topic not in pulse("topics", "show").out


def test_topic_without_settings_of_its_own_shows_what_holds(pulse: CommandLine, topic: str) -> None:
    shown = pulse("topics", "show", topic).out
    assert "1s, then ×2, up to 2h, ±20%" in shown
    assert row_of(shown, "keep-completed") == ["keep-completed", "7d", "server", "–", "–", "7d"]
    assert row_of(shown, "running") == ["running", "–", "–", "–", "–"]
    assert "No operator has set and no worker has declared anything" in shown


def test_operator_code_and_server_are_shown_side_by_side(
    pulse: CommandLine, address: str, topic: str
) -> None:
    declare(address, topic, "mailer-1", running=10, max_attempts=8)
    pulse("topics", "set", topic, "--running", "50", "--max-attempts", "40")
    known = pulse("topics", "show", topic, "-o", "json").json
    assert (known["declared"]["max_attempts"], known["declared_by"]) == (8, "mailer-1")
    shown = pulse("topics", "show", topic).out
    assert row_of(shown, "running") == ["running", "50", "operator", "50", "10", "–"]
    assert row_of(shown, "max-attempts") == ["max-attempts", "40", "operator", "40", "8", "25"]
    assert any("declared by mailer-1" in line for line in shown.splitlines())
    back = pulse("topics", "reset", topic).out
    assert row_of(back, "max-attempts") == ["max-attempts", "8", "code", "–", "8", "25"]


def test_workers_that_declare_different_limits_are_shown(
    pulse: CommandLine, address: str, topic: str
) -> None:
    declare(address, topic, "syncer-1", running=10)
    declare(address, topic, "syncer-2", running=20)
    shown = pulse("topics", "show", topic).out
    assert "Workers declare different limits. The strictest holds:" in shown
    assert "syncer-2: running 20" in shown
    known = pulse("topics", "show", topic, "-o", "json").json
    assert (known["in_force"]["running"], known["decided_by"]["running"]) == (10, "code")
    assert [each["worker_id"] for each in known["differing"]] == ["syncer-1", "syncer-2"]


def test_pending_limits_are_shown_with_the_transaction_that_they_wait_for(
    own: CommandLine, own_database: str, topic: str
) -> None:
    async def lock_a_running_job() -> asyncpg.Connection[asyncpg.Record]:
        shop = await asyncpg.connect(own_database)
        job = await shop.fetchval("SELECT job_id FROM pulse.enqueue($1, ''::bytea)", topic)
        await shop.execute(
            "UPDATE pulse.jobs SET status = 'RUNNING', run = 1, attempts = 1, locked_by = 'w', "
            "started_at = now(), lease_until = now() + interval '1 hour' WHERE id = $1",
            job,
        )
        await shop.execute(
            "INSERT INTO pulse.lease_checks VALUES (now() + interval '1 hour', true, $1)", [job]
        )
        await shop.execute("BEGIN; SELECT FROM pulse.jobs FOR UPDATE")
        return shop

    with asyncio.Runner() as runner:
        shop = runner.run(lock_a_running_job())
        clause = f"in force once pid {shop.get_server_pid()} (user "
        shown = own("topics", "set", topic, "--running", "5").out
        assert f"The last change is accepted, {clause}" in " ".join(shown.split())
        known = own("topics", "limits", topic, "-o", "json").json
        assert known["pending"].startswith(clause)
        assert known["in_force"]["running"] is None
        assert own("topics", "show", topic, "-o", "json").json["operator"]["running"] == 5
        assert "change pending" in own.screen("topics", "limits", columns=140).out
        runner.run(shop.execute("ROLLBACK"))
        known = own("topics", "set", topic, "--running", "6", "-o", "json").json
        assert (known["pending"], known["in_force"]["running"]) == (None, 6)
        runner.run(shop.close())


@each_row(
    "arguments, text",
    [
        (["set", "mail"], "Give a setting: pulse topics set mail --running 5"),
        (["set", "mail", "--running", "many"], "'--running': 'many' is not a whole number from 1 to 1,000,"),
        (["set", "mail", "--running", "0"], "'--running': running is 0: it must be from 1 to 1,000,000."),
        (["set", "mail", "--running", ""], "'--running': it is empty: write a value such as 5, or default."),
        (["set", "mail", "--pool", " "], "'--pool': it is empty: write a value such as gpu, or default."),
        (["set", "mail", "--rate", "0/s"], "rate has 0 starts: they must be from 1 to 1,000,000."),
        (["set", "mail", "--rate", "fast"], "write for example 100/min"),
        (["set", "mail", "--rate", "1/1ms"], "from 100 milliseconds"),
        (["set", "mail", "--ordered", "--per-lane", "2"], "one job of a lane at a time, and per_lane is 2"),
        (["set", "mail", "--pool", "gpu"], "pool has neither running nor a rate"),
        (["set", "mail", "--max-attempts", "1001"], "max_attempts is 1001: it must be from 1 to 1,000."),
        (["set", "mail", "--max-crashes", "100000"], "max_crashes is 100000: it must be from 1 to 1,000."),
        (["set", "mail", "--attempt-timeout", "soon"], "'soon' is not a duration"),
        (["set", "mail", "--attempt-timeout", "0s"], "it must be above zero and at most 3650 days."),
        (["set", "mail", "--attempt-timeout", "3651d"], "attempt_timeout is 3651d: it must be above zero"),
        (["set", "mail", "--backoff", "fast"], "write for example first=2s"),
        (["set", "mail", "--backoff", "first=2s,factor=500"], "it must be from 1 to 100"),
        (["set", "mail", "--backoff", "first=2h,longest=1h"], "is shorter than first"),
        (["set", "mail", "--keep-completed", "soon"], "or forever"),
        (["set", "mail", "--keep-completed", "5s"], "below a minute"),
        (["set", "mail", "--keep-completed", "99999d"], "keep them forever"),
        (["reset", "mail", "speed"], "'speed' is not one of 'running', 'rate'"),
        (["hold", "mail", "--for", "1m"], "has no limits, so it cannot be held"),
    ],
)
def test_setting_that_cannot_hold_is_refused_with_a_sentence(
    pulse: CommandLine, arguments: list[str], text: str
) -> None:
    result = pulse("topics", *arguments)
    assert result.code != 0
    assert text in result.err
    assert len(result.err.splitlines()) == 1


def test_settings_may_have_the_largest_numbers(pulse: CommandLine, topic: str) -> None:
    numbers = ["--max-attempts", "1000", "--max-crashes", "1000", "--attempt-timeout", "3650d"]
    known = pulse("topics", "set", topic, *numbers, "-o", "json").json["operator"]
    assert (known["max_attempts"], known["max_crashes"], known["attempt_timeout"]) == (1000, 1000, "3650d")
    pulse("topics", "reset", topic)


def test_every_entry_has_an_option_with_its_help(pulse: CommandLine) -> None:
    shown = " ".join(pulse("topics", "set", "--help").out.split())
    for entry in ENTRIES.values():
        assert entry.option in shown
        assert entry.help.removesuffix(".") in shown


def test_topics_are_still_listed_without_a_command(pulse: CommandLine) -> None:
    assert isinstance(pulse("topics", "--limit", "5", "-o", "json").json, list)
