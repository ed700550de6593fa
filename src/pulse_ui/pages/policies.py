"""The pages of policies: how long finished jobs are kept, and how jobs run, by topic."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.views.policies import (
    ENTRIES,
    policy_row,
    policy_rows,
    read_backoff,
    read_count,
    read_keep,
    read_limit,
    run_policy_row,
    run_policy_rows,
)
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
    found = await visit.client.topic_policies()
    own = [policy for policy in found if not policy.keeps_by_default]
    return await visit.page(
        "policies.html",
        title="Retention",
        server=policy_row(found.server, found.server),
        rows=policy_rows(own[: tuning.POLICIES_SHOWN], found.server),
        left_out=max(len(own) - tuning.POLICIES_SHOWN, 0),
    )


async def update(visit: Visit, form: Form) -> Response:
    if not (topic := form.text("topic")):
        raise pulse.InvalidArgument("Enter a topic.")
    policy = await visit.client.set_topic_policy(
        topic,
        keep_completed=read_keep(form.text("completed")),
        keep_canceled=read_keep(form.text("canceled")),
        keep_dead_lettered=read_keep(form.text("dead_lettered")),
    )
    sentence = (
        f"Saved the retention of {topic}."
        if not policy.keeps_by_default
        else f"The server's settings hold for {topic} again."
    )
    return visit.back(form, sentence, otherwise="/retention")


async def show_runs(visit: Visit) -> Response:
    found = await visit.client.topic_policies()
    rows = run_policy_rows(found, found.server)
    topic = visit.query.text("topic")
    own = next((policy for policy in found if policy.topic == topic), None)
    unset = replace(found.server, topic=topic)
    return await visit.page(
        "run_policies.html",
        title="Policies",
        columns=ENTRIES,
        changed=run_policy_row(own or unset, found.server),
        server=run_policy_row(found.server, found.server),
        rows=rows[: tuning.POLICIES_SHOWN],
        left_out=max(len(rows) - tuning.POLICIES_SHOWN, 0),
    )


async def update_runs(visit: Visit, form: Form) -> Response:
    if not (topic := form.text("topic")):
        raise pulse.InvalidArgument("Enter a topic.")
    policy = await visit.client.set_topic_policy(
        topic,
        max_attempts=read_count("Attempts", form.text("max_attempts")),
        backoff=read_backoff(form.text("backoff")),
        attempt_timeout=read_limit(form.text("timeout")),
        max_crashes=read_count("Crashes", form.text("max_crashes")),
    )
    if policy.run:
        sentence = f"Saved the policy of {topic}."
    else:
        otherwise = "what its workers declare" if policy.declared else "the server’s settings"
        sentence = f"Handed back: {otherwise} decide{'s' if policy.declared else ''} for {topic} again."
    return visit.back(form, sentence, otherwise="/policies")
