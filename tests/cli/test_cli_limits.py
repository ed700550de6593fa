"""`pulse limits` and `pulse lanes`: set, shown with their owners, held, and handed back."""

from __future__ import annotations

import asyncio

import asyncpg
import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.cli.command_line import CommandLine
from tests.rows import each_row


def declare(address: str, topic: str, worker_id: str = "syncer-1", **entries: int) -> None:
    declared = [pb.DeclaredPolicy(topic=topic, limits=pb.LimitPolicy(**entries))]
    with grpc.insecure_channel(address) as channel:
        PulseServiceStub(channel).DeclareTopicPolicies(
            pb.DeclareTopicPoliciesRequest(worker_id=worker_id, policies=declared)
        )


def test_limits_are_set_shown_and_handed_back(pulse: CommandLine, topic: str) -> None:
    shown = pulse("limits", "set", topic, "--running", "5", "--rate", "100/min", "--aging", "5m").out
    for words in (topic, "IN FORCE", "OPERATOR", "CODE", "running", "100/min", "5m", "handed back"):
        assert words in shown
    known = pulse("limits", topic, "-o", "json").json
    assert known["operator"] == {
        "running": 5,
        "rate": "100/min",
        "pool": None,
        "per_lane": None,
        "lane_rate": None,
        "turns": None,
        "ordered": None,
        "aging": "5m",
    }
    assert known["in_force"] == known["operator"] | {"turns": True}
    assert (known["running"], known["set_at"] is not None) == (0, True)
    rows = {row[0]: row for row in pulse("limits", "-o", "plain").rows}
    assert rows[topic][1:4] == ["0", "5", "100/min"]
    screen = pulse.screen("limits", columns=140).out
    assert "0 of 5" in screen
    assert "0 of 100/min" in screen

    pulse("limits", "set", topic, "--rate", "default")
    pulse("limits", "reset", topic, "aging")
    assert pulse("limits", topic, "-o", "json").json["in_force"]["running"] == 5
    back = pulse("limits", "reset", topic)
    assert f"{topic} has no limits." in back.out
    assert topic not in pulse("limits").out


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
        shown = own("limits", "set", topic, "--running", "5").out
        assert f"The last change is accepted, {clause}" in " ".join(shown.split())
        known = own("limits", topic, "-o", "json").json
        assert known["pending"].startswith(clause)
        assert (known["in_force"]["running"], known["operator"]["running"]) == (None, 5)
        assert "change pending" in own.screen("limits", columns=140).out
        changes = own("audit", "-o", "json").json[0]["changes"]
        assert changes["limits.pending"]["new"] == known["pending"]
        runner.run(shop.execute("ROLLBACK"))
        known = own("limits", "set", topic, "--running", "6", "-o", "json").json
        assert (known["pending"], known["in_force"]["running"]) == (None, 6)
        runner.run(shop.close())


def test_operator_and_code_are_shown_side_by_side(pulse: CommandLine, address: str, topic: str) -> None:
    declare(address, topic, limit=10)
    pulse("limits", "set", topic, "--running", "50")
    lines = pulse("limits", topic).out.splitlines()
    assert [line.split() for line in lines if line.strip().startswith("running")] == [
        ["running", "50", "50", "10"]
    ]
    pulse("limits", "reset", topic)
    declare(address, topic, "syncer-2", limit=20)
    shown = pulse("limits", topic).out
    assert "Workers declare different limits. The strictest holds:" in shown
    assert "syncer-2: running 20" in shown
    known = pulse("limits", topic, "-o", "json").json
    assert known["in_force"]["running"] == 10
    assert [each["worker_id"] for each in known["differing"]] == ["syncer-1", "syncer-2"]


def test_topic_is_held_and_let_go(pulse: CommandLine, topic: str) -> None:
    pulse("limits", "set", topic, "--running", "5")
    assert "Held until" in pulse("limits", "hold", topic, "--for", "2m").out
    assert "held, in " in pulse.screen("limits", columns=140).out
    assert "Held until" not in pulse("limits", "hold", topic, "--for", "0s").out
    pulse("limits", "reset", topic)


def test_lanes_are_shown_and_set(pulse: CommandLine, topic: str) -> None:
    assert "has no lanes" in pulse("lanes", topic).err
    pulse("limits", "set", topic, "--per-lane", "1", "--lane-rate", "10/s")
    done = pulse("lanes", "set", topic, "customer-42", "--weight", "3", "--limit", "5").out
    assert done.strip() == f"Set customer-42 of {topic}: weight 3, at most 5 at once."
    (lane,) = pulse("lanes", topic, "--sort", "share", "-o", "json").json
    assert (lane["lane"], lane["weight"], lane["limit"], lane["waiting"]) == ("customer-42", 3, 5, 0)
    assert "customer-42" in pulse("lanes", topic).out
    pulse("limits", "reset", topic)


def test_job_has_its_lane(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "--lane", "customer-42", "-o", "plain").out.strip()
    assert "customer-42" in pulse("jobs", "get", job_id).out
    assert pulse("jobs", "get", job_id, "-o", "json").json["lane"] == "customer-42"
    (listed,) = pulse("jobs", "list", "--topic", topic, "-o", "json").json
    assert listed["lane"] == "customer-42"


def test_jobs_of_a_lane_are_listed_and_canceled(pulse: CommandLine, topic: str) -> None:
    ids = {lane: pulse("submit", topic, "--lane", lane, "-o", "plain").out.strip() for lane in "ab"}
    (listed,) = pulse("jobs", "list", "--topic", topic, "--lane", "b", "-o", "json").json
    assert listed["id"] == ids["b"]
    canceled = pulse("jobs", "cancel", "--topic", topic, "--lane", "b", "--yes")
    assert canceled.code == 0
    assert pulse("jobs", "get", ids["b"], "-o", "json").json["status"] == "CANCELED"
    assert pulse("jobs", "get", ids["a"], "-o", "json").json["status"] == "PENDING"
    refused = pulse("jobs", "cancel", "--lane", "a", "--yes")
    assert (refused.code, "give --topic as well" in refused.err) == (2, True)


@each_row(
    "arguments, text",
    [
        (["limits", "set", "mail"], "Give a limit: pulse limits set mail --running 5"),
        (["limits", "set", "mail", "--running", "many"], "is not a whole number, such as 8, or default"),
        (["limits", "set", "mail", "--running", "0"], "'0' is not a whole number from 1 to 1,000,000"),
        (["limits", "set", "mail", "--rate", "0/s"], "'0/s' is out of bounds: from 1 to 1,000,000 starts"),
        (["limits", "set", "mail", "--rate", "fast"], "write for example 100/min"),
        (["limits", "set", "mail", "--rate", "1/1ms"], "from 100 milliseconds"),
        (["limits", "set", "mail", "--ordered", "--per-lane", "2"], "per_lane=2 was given"),
        (["limits", "set", "mail", "--pool", "gpu"], "neither a limit nor a rate"),
        (["limits", "reset", "mail", "speed"], "speed"),
        (["limits", "hold", "mail", "--for", "1m"], "has no limits, so it cannot be held"),
        (["lanes", "set", "mail", "a", "--limit", "2"], "has no lanes"),
    ],
)
def test_limit_that_cannot_hold_is_refused_with_a_sentence(
    pulse: CommandLine, arguments: list[str], text: str
) -> None:
    result = pulse(*arguments)
    assert result.code != 0
    assert text in result.err


def test_empty_pool_is_refused_with_an_example_of_a_pool(pulse: CommandLine, topic: str) -> None:
    refused = pulse("limits", "set", topic, "--running", "1", "--pool", "")
    assert (refused.code, "such as 'gpu'" in refused.err) == (2, True)


@each_row("weight", ["0", "1001", "x", "1.5", ""])
def test_number_out_of_bounds_is_refused_with_its_bounds(pulse: CommandLine, topic: str, weight: str) -> None:
    refused = pulse("lanes", "set", topic, "customer-42", "--weight", weight)
    assert refused.code == 2
    assert f"'--weight': '{weight}' is not a whole number from 1 to 1,000." in refused.err
