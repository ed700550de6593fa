"""Explain names the cause of each staged job, and no claim takes one of them."""

from __future__ import annotations

from datetime import timedelta

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.refusals import refusal_of
from tests.transport.staged_waits import SETTINGS, staged

# A part of the sentence, of the remedy and of the brief form.
WORDS = {
    "delayed": ("It is delayed until", "", "runs in "),
    "between_attempts": ("the bank does not answer", "", "runs in "),
    "sleeping": ("Its handler sleeps until", "", "sleeps for "),
    "waits_for_signal": ("waits for the signal approved", "pulse jobs signal", "waits for approved"),
    "waits_for_jobs": ("extract (PENDING)", "pulse jobs explain", "waits for 1 job"),
    "topic_paused": ("the mail server is down", "pulse dispatch resume --topic invoices", "topic paused"),
    "topic_held": ("by an operator", "pulse topics unhold held", "topic held for "),
    "topic_limit": ("1 of 1 jobs of its topic run", "pulse topics set topic-limit --running", "limit"),
    "topic_rate": ("1 in 1h", "pulse topics set topic-rate --rate", "rate of its topic"),
    "pool_limit": ("1 of pool-limit.", "--running", "limit of the pool pool_limit"),
    "pool_rate": ("1 of pool-rate.", "--rate", "rate of the pool pool_rate"),
    "lane_limit": ("Its lane acme is at its limit", "pulse lanes set lane-limit acme", "limit of its lane"),
    "lane_rate": ("Its lane acme has started", "--lane-rate", "rate of its lane"),
    "ordered": ("run in order", "pulse jobs explain", "in order, after"),
    "lane_turn": ("1 turn comes before", "--weight", "turn"),
    "no_worker": ("Did you mean 'orders.confirm'?", "pulse worker", "orders.confirm?"),
    "workers_quiet": (
        "quiet-worker has been quiet since",
        "pulse workers resume quiet-worker",
        "its 1 worker quiet",
    ),
    "workers_full": ("They run 1 of photos.", "Add workers", "workers full: 1 of 1"),
    "outranked": ("1 job comes first", "pulse jobs prioritize", "behind 1 job"),
    "worker_gone": (
        "is not connected to any server, and has held it since ",
        "when its lease ends",
        "worker gone, recovered in ",
    ),
    "worker_silent": ("no heartbeat for ", "when its lease ends", "worker silent, recovered in"),
    "locked": (
        "The transaction of session ",
        "pg_terminate_backend(",
        "locked by the transaction of session",
    ),
    "due": ("It is due.", "", "due"),
    "too_late": ("It had to start by", "", "too late to start"),
    "overdue": ("But no server has claimed it for", "dispatch_failing", "not claimed for 1m"),
}
WITH_A_TIME = {
    *("delayed", "between_attempts", "sleeping", "topic_held", "topic_rate", "pool_rate", "lane_rate"),
    *("worker_gone", "worker_silent", "due"),
}


async def explain(server: ServerUnderTest, **which: object) -> list[pb.Explanation]:
    request = pb.ExplainRequest(**which)  # type: ignore[arg-type]  # whatever the test gives
    return list((await server.stub.Explain(request)).explanations)


async def test_each_cause_is_named_and_no_claim_takes_its_job(database_dsn: str) -> None:
    async with server_under_test(database_dsn, **SETTINGS) as server, staged(server) as stage:
        stopped = {cause: job_id for cause, job_id in stage.jobs.items() if cause != "running"}
        assert stopped.keys() == WORDS.keys()

        async def are_explained() -> bool:
            found = await explain(server, job_ids=stopped.values())
            assert [item.job_id for item in found] == list(stopped.values())
            return {item.job_id: item.cause for item in found} == {job: why for why, job in stopped.items()}

        await eventually(are_explained)  # the held jobs are cached for a second
        await server.dispatch_settles()
        for cause, job_id in stopped.items():
            (item,) = await explain(server, job_ids=[job_id])
            sentence, remedy, brief = WORDS[cause]
            assert item.cause == cause
            assert sentence in item.sentence, cause
            assert item.sentence.endswith((".", "?")), cause
            assert remedy in item.remedy, cause
            assert brief in item.brief, cause
            assert item.HasField("expected_at") == (cause in WITH_A_TIME)
            assert ((await server.get(job_id)).status == "RUNNING") == cause.startswith("worker_")
        (running,) = await explain(server, job_ids=[stage.jobs["running"]])
        assert not running.cause
        assert "It has been running on running-worker since" in running.sentence

        await server.stub.PauseDispatch(pb.PauseDispatchRequest(reason="maintenance"))
        (item,) = await explain(server, job_ids=[stage.jobs["no_worker"]])
        assert (item.cause, item.remedy) == ("dispatch_paused", "Resume it: pulse dispatch resume")
        assert "maintenance" in item.sentence
        (later,) = await explain(server, job_ids=[stage.jobs["delayed"]])
        assert later.cause == "delayed"
        assert "All dispatch has been paused" in later.sentence


async def test_topic_is_explained_by_what_stops_it_or_its_next_job(database_dsn: str) -> None:
    async with server_under_test(database_dsn, **SETTINGS) as server, staged(server) as stage:
        for topic, cause, words in (
            ("invoices", "topic_paused", "The topic has been paused since"),
            ("topic-limit", "topic_limit", "1 of 1 jobs of the topic run"),
            ("orders.confrim", "no_worker", "Did you mean"),
            ("lane-limit", "lane_limit", f"Its next job is {stage.jobs['lane_limit']}."),
            ("later", "delayed", "Its next job is"),
            ("orders.confirm", "", "No job of the topic waits. It has 1 worker with 1 of 1 slots free."),
        ):
            (item,) = await explain(server, topic=topic)
            assert (item.cause, item.job_id) == (cause, ""), topic
            assert words in item.sentence, topic


async def test_worker_that_left_is_remembered_with_the_time(server: ServerUnderTest) -> None:
    async with server.worker("w1", topics=["mail"]):
        pass
    await eventually(lambda: not server.app.dispatch.roster.demand.is_wanted("mail"))
    (item,) = await explain(server, job_ids=[await server.submit("mail")])
    assert item.cause == "no_worker"
    assert "The last one left at" in item.sentence


async def test_finished_and_unknown_jobs(server: ServerUnderTest) -> None:
    canceled = await server.submit("mail")
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=canceled, reason="wrong tenant"))
    async with server.worker("w1", topics=["reports"]) as worker:
        done = await server.submit("reports")
        await worker.complete(await worker.take_one())
    unknown = "01a1efbb-eb84-7740-95ea-fcc7f5d2a472"
    first, second = await explain(server, job_ids=[done, unknown, canceled, done])
    assert (first.job_id, first.cause, first.brief) == (done, "finished", "completed")
    assert (second.job_id, second.cause, second.brief) == (canceled, "finished", "canceled")
    assert "wrong tenant" in second.sentence
    error = await refusal_of(server.stub.Explain(pb.ExplainRequest(job_ids=[unknown])))
    assert error.code().name == "NOT_FOUND"


async def test_snoozed_job_does_not_show_the_error_of_an_attempt_before(server: ServerUnderTest) -> None:
    job_id = await server.submit("mail")
    async with server.worker("w1", topics=["mail"]) as worker:
        await worker.fail(await worker.take_one(), "boom", after=timedelta(0))
        await worker.fail(await worker.take_one(), "the account is locked", snooze=timedelta(hours=1))

    (item,) = await explain(server, job_ids=[job_id])
    assert item.sentence.startswith("Its handler has snoozed it until ")
    assert ": the account is locked. " in item.sentence
    assert item.brief.startswith("snoozed for 1h: the account is locked")


async def test_ready_job_with_a_free_worker_has_no_cause(server: ServerUnderTest) -> None:
    job_id = await server.submit("mail")
    second = server.table.connection.another()
    async with server.table.connection.transaction(), second.transaction():
        # No claim takes a locked row, and where two share the lock no holder is named.
        for session in (server.table.connection, second):
            await session.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR KEY SHARE", job_id)
        async with server.worker("w1"):
            (item,) = await explain(server, job_ids=[job_id])
    await second.close()
    assert (item.cause, item.brief) == ("", "starts now")
