"""Bad input to every RPC of a real server: each is refused with a sentence, and no other caller is affected.

A few hundred inputs of each kind, from the same seed each time; `python3 dev.py chaos --fuzz` sends more. The
fuzzer itself is tested with planted faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from faults.fuzzing.acquaintances import Acquaintances
from faults.fuzzing.answers import Answer
from faults.fuzzing.callers import USERS_FILE, credentials_of
from faults.fuzzing.campaign import Campaign, Plan, campaign
from faults.fuzzing.client import ServerGone
from faults.fuzzing.contract import RPCS, SERVICES
from faults.fuzzing.crowd import crowd_at
from faults.fuzzing.inputs import Call, Input, Wire, packed
from faults.fuzzing.judging import complaints
from faults.fuzzing.known import KNOWN
from faults.fuzzing.making import Making
from faults.fuzzing.searching import search
from faults.fuzzing.sending import PATIENCE_SECONDS, channel_to, send_call, send_wire
from faults.fuzzing.targets import SETTINGS
from faults.fuzzing.vitals import Memory, broken_rules
from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role
from tests.postgres_cluster import Databases
from tests.rows import each_row
from tests.system.stage import Pulsed, Stage, free_port
from tests.transport.http2_frames import call_of, opening
from tests.transport.jobs_table import JobsTable

SEED = 8
SERVICE = "/pulse.v1.PulseService"
SUBMIT, BATCH, LINE = f"{SERVICE}/SubmitJob", f"{SERVICE}/SubmitJobs", f"{SERVICE}/StreamSubmits"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
Code = grpc.StatusCode


def fuzz(stage: Stage, server: Pulsed, *, volleys: int, guarded: bool = False) -> Campaign:
    """Send a round of inputs, and check the server meanwhile."""
    memory = Memory(server.pid)
    with campaign(Plan(server.address, stage.dsn, SEED, 1, volleys, guarded)) as fuzzing:
        findings = fuzzing.send(KNOWN) + fuzzing.attack(lambda tally: memory.note(tally.inputs))
        assert not findings, "\n".join(map(str, findings))
    assert server.is_running
    assert not memory.has_grown_too_much, str(memory)
    return fuzzing


async def test_bad_input_to_an_open_server_is_refused_and_harms_no_other_caller(
    stage: Stage, table: JobsTable
) -> None:
    server = await stage.pulsed(**SETTINGS)
    async with crowd_at(server.address):
        fuzzing = await asyncio.to_thread(fuzz, stage, server, volleys=3)

    tally = fuzzing.tally
    assert {rpc.name for rpc in RPCS} <= tally.rpcs.keys(), "every RPC was called"
    assert len(tally.served) > len(RPCS) / 2, "many inputs are served"
    assert not {"INTERNAL", "UNKNOWN", "DATA_LOSS"} & tally.statuses.keys()
    assert await broken_rules(table.connection) == []


async def test_bad_input_to_a_server_with_users_is_refused_and_harms_no_other_caller(
    stage: Stage, table: JobsTable
) -> None:
    users = stage.directory / "users"
    users.write_text(USERS_FILE)
    server = await stage.pulsed(**SETTINGS, PULSE_AUTH_USERS_FILE=str(users))
    fuzzing = await asyncio.to_thread(fuzz, stage, server, volleys=2, guarded=True)

    assert {rpc.name for rpc in RPCS} <= fuzzing.tally.rpcs.keys(), "every RPC was called"
    assert {"UNAUTHENTICATED", "PERMISSION_DENIED", "OK"} <= fuzzing.tally.statuses.keys()
    assert not {"INTERNAL", "UNKNOWN", "DATA_LOSS"} & fuzzing.tally.statuses.keys()
    assert await broken_rules(table.connection) == []


@pytest.fixture(scope="module")
def quiet_address(
    databases: Databases, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server that is not fuzzed."""
    with databases.temporary(template_database) as dsn:
        stage = Stage(dsn, tmp_path_factory.mktemp("quiet"))
        yield asyncio.run(stage.pulsed(**SETTINGS)).address
        stage.close()


async def test_all_services_of_the_server_are_fuzzed(quiet_address: str) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async with channel_to(quiet_address) as channel:
        answer = await send_call(channel, Call(REFLECTION, (question.SerializeToString(),)))

    (response,) = map(reflection_pb2.ServerReflectionResponse.FromString, answer.messages)
    assert {service.name for service in response.list_services_response.service} == SERVICES


async def test_status_of_a_call_on_a_bare_connection_is_read(quiet_address: str) -> None:
    good = Wire(opening() + call_of(1, f"{SERVICE}/GetDispatchStatus".encode()), stays=True)
    bad = Wire(opening() + call_of(1, SUBMIT.encode()), stays=True)

    async def answer_to(wire: Wire) -> Answer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (answers := (await send_wire(quiet_address, wire)).answers):
                pass  # a busy machine takes longer than the fuzzer listens
        return answers[0]

    assert (await answer_to(good)).code is Code.OK
    refused = await answer_to(bad)
    assert (refused.code, refused.is_pulseds_own) == (Code.INVALID_ARGUMENT, True)
    assert refused.details.startswith("topic is empty")


def test_server_that_is_gone_is_reported_with_the_last_inputs(database_dsn: str) -> None:
    no_server = Plan(f"127.0.0.1:{free_port()}", database_dsn, SEED, 1, 1)
    with campaign(no_server) as fuzzing, pytest.raises(ServerGone, match=r'bytes.fromhex\("ff"\)'):
        fuzzing.send([Call(SUBMIT, (b"\xff",))])


def line_answers(*numbers: int) -> tuple[bytes, ...]:
    return tuple(pb.StreamSubmitsResponse(number=number).SerializeToString() for number in numbers)


def refused_in_a_batch(code: Code, sentence: str) -> tuple[bytes, ...]:
    refusal = pb.Refusal(code=code.value[0], message=sentence)
    return (pb.SubmitJobsResponse(results=[pb.SubmitResult(refusal=refusal)]).SerializeToString(),)


MESSAGE = pb.StreamSubmitsRequest(number=7).SerializeToString()
GOOD: list[tuple[Call, Answer]] = [
    (Call(SUBMIT), Answer(Code.OK, messages=(b"",))),
    (Call(SUBMIT), Answer(Code.INVALID_ARGUMENT, "topic is empty: name the kind of work.", True)),
    (Call(SUBMIT), Answer(Code.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (9 vs. 8)")),
    (Call(f"{SERVICE}/Nope"), Answer(Code.UNIMPLEMENTED, "Method not found!")),
    (Call(BATCH), Answer(Code.OK, messages=refused_in_a_batch(Code.INVALID_ARGUMENT, "job_id is no id."))),
    (Call(LINE, (MESSAGE, MESSAGE)), Answer(Code.OK, messages=line_answers(7, 7))),
]
BAD: list[tuple[str, Call, Answer]] = [
    (
        "INTERNAL",
        Call(SUBMIT),
        Answer(Code.INTERNAL, "Internal error. The log of the server has the details.", True),
    ),
    ("UNKNOWN", Call(SUBMIT), Answer(Code.UNKNOWN, "Unknown to every caller.")),
    ("DEADLINE_EXCEEDED", Call(SUBMIT), Answer(Code.DEADLINE_EXCEEDED, "Deadline Exceeded")),
    ("try again", Call(SUBMIT), Answer(Code.UNAVAILABLE, "The database did not answer. Try again.", True)),
    ("no sentence", Call(SUBMIT), Answer(Code.INVALID_ARGUMENT, "topic", True)),
    ("no sentence", Call(SUBMIT), Answer(Code.NOT_FOUND, "", True)),
    ("characters", Call(SUBMIT), Answer(Code.INVALID_ARGUMENT, f"topic is {'x' * 5000} long.", True)),
    ("'asyncpg'", Call(SUBMIT), Answer(Code.INVALID_ARGUMENT, "This is what asyncpg says.", True)),
    ("'SELECT'", Call(SUBMIT), Answer(Code.INVALID_ARGUMENT, "It was SELECT what failed.", True)),
    ("no SubmitJobResponse", Call(SUBMIT), Answer(Code.OK, messages=(b"\xff",))),
    ("0 answers", Call(SUBMIT), Answer(Code.OK)),
    ("does not exist", Call(f"{SERVICE}/Nope"), Answer(Code.OK)),
    ("does not exist", Call(SUBMIT), Answer(Code.UNIMPLEMENTED, "Method not found!")),
    ("INTERNAL", Call(BATCH), Answer(Code.OK, messages=refused_in_a_batch(Code.INTERNAL, "A bug was met."))),
    ("no sentence", Call(BATCH), Answer(Code.OK, messages=refused_in_a_batch(Code.NOT_FOUND, "gone"))),
    ("the line was asked", Call(LINE, (MESSAGE,)), Answer(Code.OK)),
    ("the line was asked", Call(LINE, (MESSAGE,)), Answer(Code.OK, messages=line_answers(7, 7))),
]


@each_row("call, answer", GOOD)
def test_good_answer_is_not_complained_about(call: Call, answer: Answer) -> None:
    assert complaints(call, answer, guarded=False) == []


@each_row("what, call, answer", BAD)
def test_bad_answer_is_complained_about(what: str, call: Call, answer: Answer) -> None:
    assert what in "\n".join(complaints(call, answer, guarded=False))


@each_row("what, metadata", [("without credentials", ()), ("as viewer", credentials_of(Role.VIEWER))])
def test_missing_authentication_is_complained_about(what: str, metadata: Any) -> None:
    call, answer = Call(SUBMIT, metadata=metadata), Answer(Code.OK, messages=(b"",))
    assert f"let in {what}" in "\n".join(complaints(call, answer, guarded=True))


def test_input_that_gets_a_bad_answer_is_shrunk_and_can_be_sent_again() -> None:
    """Planted: the server fails on a priority. The other inputs are not in the finding."""
    (rpc,) = (rpc for rpc in RPCS if rpc.name == "PrioritizeJob")

    def shoot(volley: Any) -> list[str]:
        sent = [pb.PrioritizeJobRequest.FromString(message) for call in volley for message in call.messages]
        return ["the server fell over"] if any(request.priority > 0 for request in sent) else []

    calls = Making(Acquaintances(SEED), guarded=False).structured(rpc)
    finding = search(calls, shoot, volleys=100, number=SEED + 1)

    assert finding is not None
    assert finding.complaints == ("the server fell over",)
    (call,) = finding.volley
    assert call == Call(rpc.path, (pb.PrioritizeJobRequest(priority=1).SerializeToString(),))
    assert eval(repr(call), {"Call": Call}) == call


@each_row(
    "one",
    [
        Call(SUBMIT, (b"", b"\0\xff" * 1000), (("x-bin", b"\xff"),), hangs_up=True),
        Wire(b"\0\xff", stays=True),
        Wire(b"x" * 10_000),
    ],
)
def test_input_is_written_as_python(one: Input) -> None:
    assert eval(repr(one), {"Call": Call, "Wire": Wire, "packed": packed}) == one


def test_memory_growth_is_distinguished_from_warm_up() -> None:
    mebibyte = 1024 * 1024
    inputs = range(0, 100_001, 1000)
    warmed = Memory(0, [(sent, (60 + min(40, sent // 200)) * mebibyte) for sent in inputs])
    leaking = Memory(0, [(sent, 60 * mebibyte + 600 * sent) for sent in inputs])

    assert not warmed.has_grown_too_much
    assert leaking.has_grown_too_much
    assert leaking.per_input == pytest.approx(600, rel=0.1)


async def test_row_that_the_server_would_have_refused_is_found(table: JobsTable) -> None:
    insert = """
        INSERT INTO pulse.jobs (id, topic, payload, submitted_at, next_run_at, max_attempts, queued, status)
        VALUES (gen_random_uuid(), $1, '', now(), now(), 5, true, 'PENDING')
    """
    await table.connection.execute(insert, "mail")
    assert await broken_rules(table.connection) == []

    await table.connection.execute(insert, "two words")
    (found,) = await broken_rules(table.connection)
    assert found.startswith("1 rows of pulse.jobs break the rule: topic")
