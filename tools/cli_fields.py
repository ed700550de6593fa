"""The fields that `pulse -o plain` prints, by command."""

from pulse_cli import workers
from pulse_cli import workflows as workflow_views
from pulse_cli.audit import audit_view
from pulse_cli.jobs.views import TRANSITION_FIELDS, job_view
from pulse_cli.outbox import commands as outbox_views
from pulse_cli.overview import dead_letter_view, server_view
from pulse_cli.schedules.views import fire_view, preview_view, schedule_view
from pulse_cli.top import finding_view
from pulse_cli.topics.views import lane_view, limits_view, settings_view, topic_view
from pulse_cli.workers import worker_view
from tools.cli_shapes import worker

PLAIN = {
    "`jobs list`": job_view().fields,
    "`jobs cancel`, `retry`, `prioritize` with ids": ("id", "status"),
    "`jobs delete` with ids": ("id",),
    "`attention`": finding_view().fields,
    "`dead-letters`": dead_letter_view().fields,
    "`audit`": audit_view().fields,
    "`jobs tail`": TRANSITION_FIELDS,
    "`topics`": topic_view().fields,
    "`topics show`": settings_view().fields,
    "`topics limits`": limits_view().fields,
    "`lanes`": lane_view().fields,
    "`workers`": worker_view().fields,
    "`servers`": server_view().fields,
    "`workers --jobs`": ("worker_id", *workers.held_shape(worker.held[0])),
    "`outbox list`": outbox_views.refused_view().fields,
    "`submit`, `schedules fire`": ("id",),
    "`submit --wait`": ("id", "status"),
    "`workflows list`": workflow_views.workflow_view().fields,
    "`workflows watch`": ("id", "status", "progress"),
    "`schedules list`": schedule_view().fields,
    "`schedules pause`, `resume`, `delete`": ("id",),
    "`schedules fires`": fire_view().fields,
    "`schedules preview`": preview_view().fields,
}
