"""One example of each thing that `pulse` prints, put through the code that prints it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pulse
from pulse_cli import shapes
from pulse_cli.job_views import job_view
from pulse_cli.schedule_views import fire_view, preview_view, schedule_view

_NINE = datetime(2030, 1, 31, 9, tzinfo=UTC)
_JOB = "0199c0de-0000-7000-8000-000000000001"
_SCHEDULE = "0199c0de-0000-7000-8000-0000000000ff"

_job = pulse.JobInfo(
    id=_JOB,
    status=pulse.JobStatus.RETRYING,
    topic="send-email",
    priority=0,
    attempts=1,
    max_attempts=5,
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
    history=(
        pulse.Attempt(
            attempt=1,
            worker_id="mailer-1",
            started_at=_NINE,
            ended_at=_NINE + timedelta(seconds=1),
            outcome="failed",
            error="TimeoutError: no answer from the mail server",
        ),
    ),
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
    max_attempts=5,
    metadata={},
    payload=b'{"to": "a@b.c"}',
    catch_up="one",
    created_at=_NINE - timedelta(days=1),
)
_paused = pulse.DispatchStatus(
    paused=True,
    reason="database maintenance",
    paused_at=_NINE,
    topics={"send-email": pulse.TopicPause("mail server is down", _NINE)},
)

SHAPES: dict[str, Any] = {
    "A job, in `jobs get` and `submit --wait`; elsewhere without `payload`, `payload_base64` and `history`. "
    "A payload that is JSON stands in `payload`, any other in `payload_base64`": shapes.whole_job_shape(_job),
    "A job that was stored, in `submit` and `schedules fire`": shapes.handle_shape(
        pulse.JobHandle(_JOB, "send-email")
    ),
    "A schedule, in `schedules get`, `create` and `update`; elsewhere without its payload. "
    "One of `at`, `every` and `cron` is set": shapes.whole_schedule_shape(_schedule),
    "A fire, in `schedules fires`": shapes.fire_shape(
        pulse.ScheduleFire(_JOB, _NINE, pulse.JobStatus.COMPLETED)
    ),
    "A fire to come, in `schedules preview`": preview_view().shape(_NINE),
    "The switch, in `dispatch status`, `pause` and `resume`": shapes.dispatch_shape(_paused),
}

PLAIN = {
    "`jobs list`": job_view().fields,
    "`jobs cancel`, `jobs retry`": ("id", "status"),
    "`submit`, `schedules fire`": ("id",),
    "`submit --wait`": ("id", "status"),
    "`schedules list`": schedule_view().fields,
    "`schedules pause`, `resume`, `delete`": ("id",),
    "`schedules fires`": fire_view().fields,
    "`schedules preview`": preview_view().fields,
}
