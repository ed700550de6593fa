"""One example of each thing that `pulse` prints, put through the code that prints it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pulse
from pulse_cli import access, overview, top, workers
from pulse_cli import workflows as workflow_views
from pulse_cli.audit import audit_view
from pulse_cli.jobs import bulk, views
from pulse_cli.jobs.views import explanation_shape
from pulse_cli.outbox import commands as outbox_views
from pulse_cli.outbox import database as outbox_database
from pulse_cli.schedules import views as schedules_views
from pulse_cli.schedules.views import preview_view
from pulse_cli.top import Snapshot
from pulse_cli.topics import views as topic_views
from pulse_cli.topics import views as topics_views

_NINE = datetime(2030, 1, 31, 9, tzinfo=UTC)
_SOON, _EIGHT = _NINE + timedelta(seconds=1), _NINE - timedelta(hours=1)
_JOB = "0199c0de-0000-7000-8000-000000000001"
_SCHEDULE = "0199c0de-0000-7000-8000-0000000000ff"
_WORKFLOW = "0199c0de-0000-7000-8000-0000000000aa"

_progress = pulse.Progress(0.4, "20 of 50 letters", cursor=20, attempt=1, reported_at=_SOON, since=_NINE)
_job = pulse.JobInfo(
    id=_JOB,
    status=pulse.JobStatus.RETRYING,
    topic="send-email",
    priority=0,
    attempts=1,
    max_attempts=25,
    submitted_at=_NINE,
    next_run_at=_NINE + timedelta(seconds=2),
    started_at=_NINE,
    finished_at=None,
    lease_until=None,
    worker_id=None,
    last_error="TimeoutError: no answer from the mail server",
    idempotency_key="order-4711",
    schedule_id=None,
    metadata={"tenant": "acme"},
    payload=b'{"to": "a@b.c"}',
    error_group=None,
    history=(
        pulse.Attempt(
            attempt=1,
            worker_id="mailer-1",
            started_at=_NINE,
            ended_at=_SOON,
            outcome="failed",
            error="TimeoutError: no answer from the mail server",
        ),
    ),
    progress=_progress,
)
_step = pulse.StepInfo(
    name="fetch", kind=pulse.StepKind.STEP, attempt=1, started_at=_NINE, stored_at=_SOON, size=120
)
_schedule = pulse.ScheduleInfo(
    id=_SCHEDULE,
    name="morning-report",
    topic="send-report",
    kind="cron",
    spec=pulse.Cron("0 9 * * 1-5", "Europe/Paris"),
    next_run_at=_NINE,
    last_run_at=None,
    paused=False,
    priority=0,
    max_attempts=25,
    metadata={},
    payload=b'{"to": "a@b.c"}',
    catch_up="one",
    created_at=_NINE - timedelta(days=1),
    declared=True,
    overrides=(pulse.ScheduleOverride("cron", "ann", _EIGHT),),
)
_schedule = replace(
    _schedule, declares=replace(_schedule, spec=pulse.Cron("0 8 * * 1-5", "Europe/Paris"), overrides=())
)
_paused = pulse.DispatchStatus(
    paused=True,
    reason="database maintenance",
    paused_at=_NINE,
    topics={"send-email": pulse.TopicPause("mail server is down", _NINE)},
)
_dead = pulse.DeadLetterGroup(
    topic="send-email", error_group="86194952523c", count=12, first_at=_EIGHT, last_at=_NINE, sample=_job
)
_audit_entry = pulse.AuditEntry(
    action_id="0199c0de-0000-7000-8000-0000000000bb",
    at=_NINE,
    user="ann",
    role="operator",
    address="10.0.0.7",
    method="SetTopic",
    reason="the bank asked for it",
    topic="send-email",
    ids=(),
    count=1,
    outcome="OK",
    refusal="",
    asked={"topic": "send-email", "running": 2},
    changes={"running": {"old": 5, "new": 2}},
    can_undo=False,
)
_rates = pulse.Rates(submitted=120, completed=118, failed=3, dead_lettered=1)
_topic = pulse.TopicInfo(
    topic="send-email",
    ready=40,
    waiting=2,
    running=8,
    dead_lettered=1,
    canceled=0,
    oldest_ready_at=_NINE,
    last_minute=_rates,
    last_hour=_rates,
    paused=True,
    workers=2,
    wait=pulse.Latency(count=120, p50=0.004, p95=0.031, p99=0.25),
    run=pulse.Latency(count=121, p50=0.81, p95=2.4, p99=6.5),
)
worker = pulse.WorkerInfo(
    worker_id="mailer-1",
    topics=("send-email",),
    capacity=10,
    connected_at=_NINE,
    server="pulse-a:50051",
    held_count=1,
    held=(pulse.HeldJob(_JOB, "send-email", 1, _NINE, _NINE + timedelta(seconds=30), None),),
    state=pulse.WorkerState("quiet", "memory grows", _NINE, "ann"),
)
_RATE = pulse.Rate(100, per=timedelta(minutes=1))
_settings = pulse.TopicSettings(
    "sync-crm",
    in_force={
        "running": 5,
        "rate": _RATE,
        "max_attempts": 8,
        "backoff": pulse.Backoff(first=timedelta(seconds=2)),
        "max_crashes": 5,
        "keep_completed": timedelta(days=1),
        "keep_canceled": timedelta(days=7),
        "keep_dead_lettered": timedelta(days=30),
    },
    decided_by={
        "running": "operator",
        "rate": "code",
        "max_attempts": "code",
        "backoff": "server",
        "max_crashes": "server",
        "keep_completed": "operator",
        "keep_canceled": "server",
        "keep_dead_lettered": "server",
    },
    operator={"running": 5, "keep_completed": timedelta(days=1)},
    set_by="ann",
    set_at=_NINE,
    declared={"running": 10, "rate": _RATE, "max_attempts": 8},
    declared_by="mailer-1",
    declared_at=_EIGHT,
    before={"keep_completed": timedelta(days=7)},
    shorter_from=_NINE + timedelta(hours=1),
)
_limits = pulse.TopicLimits("sync-crm", {"running": 5, "rate": _RATE, "turns": True}, 3, None, _NINE)
_lane = pulse.LaneInfo("customer-42", 12, 1, _NINE, None, 1, None)
_transition = pulse.Transition(
    job_id=_JOB,
    topic="send-email",
    status=pulse.JobStatus.RETRYING,
    attempt=1,
    worker_id="mailer-1",
    error="TimeoutError: no answer from the mail server",
    at=_NINE,
)

_workflow = pulse.WorkflowInfo(
    id=_WORKFLOW,
    name="nightly",
    status=pulse.WorkflowStatus.RUNNING,
    jobs=2,
    unfinished=1,
    succeeded=1,
    failed=0,
    canceled=0,
    skipped=0,
    submitted_at=_NINE,
    finished_at=None,
    canceled_at=None,
    schedule_id=None,
)
_workflow_job = pulse.WorkflowJob(
    number=2,
    id=_JOB,
    name="load",
    topic="load-warehouse",
    when="succeeded",
    state="ready",
    status=pulse.JobStatus.RUNNING,
    outcome=None,
    parents=(1,),
    unended_parents=0,
    attempts=1,
    last_error=None,
    started_at=_NINE + timedelta(seconds=4),
    finished_at=None,
    next_run_at=None,
)

_explanation = pulse.Explanation(
    _JOB,
    "topic_paused",
    "Its topic has been paused since 09:00:00 UTC by ada: the bank is down.",
    "Resume it: pulse dispatch resume --topic send-email",
    None,
    "topic paused by ada",
)

SHAPES: dict[str, Any] = {
    "A job, in `jobs get` and `jobs export`; in `submit --wait` without `step_list`; elsewhere without "
    "`payload`, `payload_base64` and `history` as well. A JSON payload is in `payload`, any other in "
    "`payload_base64`": (views.job_shape_with_steps(_job, [_step])),
    "A submitted job, in `submit` and `schedules fire`": views.handle_shape(
        pulse.JobHandle(_JOB, "send-email")
    ),
    "A workflow, in `workflows get`; elsewhere without `job_list`. Its `status` is `running`, `succeeded`, "
    "`failed` or `canceled`. `parents` are the numbers of the jobs that a job waits for, or waited for. "
    "`state` is `waiting` while it waits for them, then `ready`; `dropped`: it was canceled because one of "
    "them did not succeed; `skipped`: it was not needed. `outcome` is `succeeded`, `failed`, `canceled` or "
    "`skipped`, and `null` until the job has ended. `status` is `null` if the job was deleted. `waits_for` "
    "has the signals that its handler waits for, and is empty while the handler sleeps": (
        workflow_views.whole_workflow_shape(_workflow, [_workflow_job])
    ),
    "A schedule, in `schedules get`, `create` and `update`; elsewhere without its payload. "
    "One of `at`, `every` and `cron` is set": schedules_views.whole_schedule_shape(_schedule),
    "A fire, in `schedules fires`": schedules_views.fire_shape(
        pulse.ScheduleFire(_JOB, _NINE, pulse.JobStatus.COMPLETED)
    ),
    "An upcoming fire, in `schedules preview`": preview_view().shape(_NINE),
    "What is paused, in `dispatch status`, `pause` and `resume`. `held_back` is how many ready jobs wait for "
    "a resume; in `topics`, for the resume of that topic": topics_views.dispatch_shape(_paused, [_topic]),
    "A topic, in `topics`. `waiting` counts jobs that are delayed or between two attempts; "
    "`waiting_for_jobs` counts jobs of workflows that wait for other jobs; `failed` counts attempts. `wait`, "
    "from due to claimed, and `run`, from claimed to reported, are seconds of the last full hour": (
        topics_views.topic_shape(_topic)
    ),
    "The settings of a topic, in `topics show`, `set` and `reset`. `in_force` holds: what an `operator` has "
    "set wins over what is `declared` by the code of workers, and that over the server's settings; "
    "`decided_by` has who set each: `operator`, `code`, `server` or `pool`. Values are as the options take "
    "them; `null`: not set. `differing` has what connected workers declare, if it is not the same; the "
    "strictest holds. `before` has durations that were shortened: they count until `shorter_from`. The first "
    "of the list has no topic: these are the settings of the server": topic_views.settings_shape(_settings),
    "The limits of a topic, in `topics limits`, `hold` and `unhold`. `running` and `started` are counted over"
    " the pool, if there is one. `pool_topics` and `lanes` are there for one topic only": (
        topic_views.used_limits_shape(_limits, [], [_lane])
    ),
    "A lane, in `lanes`. `waiting` is counted to 1000; `limit` is `null` unless the lane has its own": (
        topic_views.lane_shape(_lane)
    ),
    "A worker, in `workers`. `connected_at` and `server` are `null` for one that holds jobs without a "
    "connection; `held` has the twenty held longest. `state` is `null` unless an operator has ordered the "
    "worker to be quiet or to stop": workers.worker_shape(worker),
    "What `workers quiet`, `workers resume` and `workers stop` have ordered. `state` is quiet, running or "
    "stopping; `note` is a sentence if the worker cannot be stopped": workers.worker_order_shape(
        "mailer-1", "quiet"
    ),
    "A server, in `servers`. `silent_since` is the time of its last report, if the next one is overdue": (
        overview.server_shape(pulse.ServerInfo(_SCHEDULE, "pulse-1:4711", _NINE, 2, "0.0.0.0:50051", "0.1.0"))
    ),
    "A snapshot of the queue, in `top`; `topics` and `workers` as above, `findings` as in `attention`": (
        top.snapshot_shape(Snapshot(_paused, [], [], _NINE))
    ),
    "A transition, in `jobs tail`: one object per line": views.transition_shape(_transition),
    "Missed transitions, in `jobs tail`: `missed` of any jobs because there were too many, or an "
    "unknown number because the connection was `interrupted`": views.gap_shape(
        pulse.Transitions((), 12, interrupted=False)
    ),
    "Why a job does not run, in `jobs explain`, or why a topic starts no jobs, in `topics explain`. `cause` "
    "is a code, and empty if nothing stops it; `job_id` is `null` for a topic": explanation_shape(
        _explanation
    ),
    "What needs attention, in `attention`. `topic` and `worker_id` are `null` for the whole queue": (
        top.finding_shape(
            pulse.Finding("starving", True, "mail", None, "has 1 ready job and no worker.", 0.2)
        )
    ),
    "A group of dead letters, in `dead-letters`; the `sample` is the newest, a job as above": (
        overview.dead_letter_shape(_dead) | {"sample": {}}
    ),
    "An action, in `audit`. `ids` has the first 64; `changes` the settings that changed": audit_view().shape(
        _audit_entry
    ),
    "The jobs in the outbox, in `outbox status`. `lag` is how long the oldest has been "
    "waiting": outbox_views.status_shape(outbox_database.Status(12, 1, _NINE, timedelta(seconds=2))),
    "A refused job, in `outbox list`": outbox_views.refused_shape(
        outbox_database.RefusedJob(_JOB, "send email", None, _NINE, _NINE, "topic must not contain ' '.")
    ),
    "Your user and role, in `whoami`. `user` is `null` on a server without users": access.identity_shape(
        pulse.Identity("ann", "viewer", frozenset({"GetJob", "ListJobs", "WhoAmI"}))
    ),
    "An action on all jobs that match, in `jobs cancel`, `retry`, `prioritize` and `delete` without ids. "
    "`matched` is the count before the action, `null` for COMPLETED jobs, which are not counted; `locked` "
    "were skipped because another session of the database has locked them, `held` because another job holds "
    "their unique key, `needed` because their workflow has not ended, `in_canceled_workflows` because they "
    "wait in canceled workflows; `changed` were changed; `complete` is false if it was interrupted or a dry "
    "run; `action_id` is for `undo`": (
        bulk.bulk_shape(10_000, 10_000, counted_at=_NINE, is_complete=True, is_dry_run=False, action_id=_JOB)
    ),
}
