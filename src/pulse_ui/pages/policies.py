"""The retention page: how long finished jobs are kept, by topic and by status."""

from __future__ import annotations

from starlette.responses import Response

import pulse
from pulse_ui import tuning
from pulse_ui.views.policies import policy_row, policy_rows, read_keep
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
