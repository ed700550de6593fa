"""The policies page: how the jobs of topics are retried, how long an attempt may take, and who decides it."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.views.run_policies import (
    ENTRIES,
    read_backoff,
    read_count,
    read_limit,
    run_policy_row,
    run_policy_rows,
)
from pulse_ui.web.forms import Form
from pulse_ui.web.visits import Visit


async def show(visit: Visit) -> Response:
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


async def update(visit: Visit, form: Form) -> Response:
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
