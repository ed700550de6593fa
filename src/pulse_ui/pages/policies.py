"""The pages of policies: how long finished jobs are kept, and how jobs run, by topic."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from pulse_text.consequences import shorter_retention
from pulse_ui import tuning
from pulse_ui.views.limit_forms import read_all
from pulse_ui.views.overview.query import topic_path
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
from pulse_ui.web.forms import Form, required_topic
from pulse_ui.web.questions import asks
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
    topic = required_topic(form)
    keep: dict[str, Any] = {
        f"keep_{status}": read_keep(form.text(status))
        for status in ("completed", "canceled", "dead_lettered")
    }
    if question := await asks(visit, form, shorter_retention(topic, keep), verb="Shorten the retention"):
        return question
    policy = await visit.client.set_topic_policy(topic, reason=form.reason, **keep)
    sentence = (
        f"Saved the retention of {topic}."
        if not policy.keeps_by_default
        else f"The server's settings hold for {topic} again."
    )
    return visit.back(form, sentence, otherwise="/retention")


async def show_runs(visit: Visit) -> Response:
    if topic := visit.query.text("topic"):
        return visit.go(topic_path(topic, "policy"))
    found = await visit.client.topic_policies()
    rows = run_policy_rows(found, found.server)
    return await visit.page(
        "run_policies.html",
        title="Policies",
        columns=ENTRIES,
        server=run_policy_row(found.server, found.server),
        rows=rows[: tuning.POLICIES_SHOWN],
        left_out=max(len(rows) - tuning.POLICIES_SHOWN, 0),
    )


async def update_runs(visit: Visit, form: Form) -> Response:
    topic = required_topic(form)
    entries = read_all(
        max_attempts=lambda: read_count("Attempts", form.text("max_attempts")),
        backoff=lambda: read_backoff(form.text("backoff")),
        attempt_timeout=lambda: read_limit(form.text("timeout")),
        max_crashes=lambda: read_count("Crashes", form.text("max_crashes")),
    )
    policy = await visit.client.set_topic_policy(topic, reason=form.reason, **entries)
    if policy.run:
        sentence = f"Saved the policy of {topic}."
    else:
        otherwise = "what its workers declare" if policy.declared else "the server’s settings"
        sentence = f"Handed back: {otherwise} decide{'s' if policy.declared else ''} for {topic} again."
    return visit.back(form, sentence, otherwise="/policies")
