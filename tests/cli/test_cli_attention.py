"""`pulse attention`: what needs an operator, most harmful first."""

from __future__ import annotations

from datetime import UTC, datetime

import pulse as sdk
from pulse_cli.schedules.views import describe_schedule, schedule_view
from pulse_cli.terminal import WARNING
from pulse_cli.top import Snapshot, finding_view, frame
from pulse_cli.topics.commands import describe_dispatch
from pulse_cli.topics.views import topic_table
from tests.cli.buried_jobs import sql
from tests.cli.command_line import CommandLine, until
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES

NOW = datetime(2024, 5, 6, 9, 0, tzinfo=UTC)
DYING = sdk.Finding("dead", True, "pay ments", None, "dead-lettered 895 jobs in the last 5 min.", 17_900.0)
LATE = sdk.Finding("old", False, "mail", None, "is falling behind.", 2.0)


def test_topic_without_a_worker_needs_attention(own: CommandLine, own_database: str, topic: str) -> None:
    assert "Nothing needs attention." in own("attention").err
    own("submit", topic, "--payload", "{}")
    sql(
        own_database,
        "UPDATE pulse.jobs SET next_run_at = now() - interval '3 minutes' WHERE topic = $1",
        topic,
    )

    (found,) = until(own, ["attention"], lambda found: len(found) == 1)

    documented = next(shape for title, shape in SHAPES.items() if title.startswith("What needs attention"))
    assert list(found) == list(documented)
    assert (found["topic"], found["kind"], found["urgent"]) == (topic, "starving", True)
    assert {len(row) for row in own("attention", "-o", "plain").rows} == {len(PLAIN["`attention`"])}
    shown = own("attention").out
    assert f"{topic} has 1 ready job and no worker, for 3m" in shown


def test_finding_shows_the_next_command() -> None:
    mark, words, command = finding_view().row(DYING)

    assert (mark.text, mark.style) == ("✕", "bold red")
    assert words.text == "pay ments dead-lettered 895 jobs in the last 5 min."
    assert command.text == "pulse dead-letters --topic 'pay ments'"


def test_all_that_is_paused_has_the_color_of_a_warning() -> None:
    rates, quick = sdk.Rates(0, 0, 0, 0), sdk.Latency(0, 0, 0, 0)
    topic = sdk.TopicInfo("mail", 0, 0, 0, 0, 0, None, rates, rates, True, 1, quick, quick)
    status = sdk.DispatchStatus(True, "", NOW, {"mail": sdk.TopicPause("", NOW)})
    schedule = sdk.ScheduleInfo(
        *("0199c0de-0000-7000-8000-000000000001", "nightly", "mail", "cron", sdk.Cron("0 9 * * *", "UTC")),
        *(NOW, None, True, 0, 25, {}, b"", "one", NOW),
    )
    everything = sdk.Finding("paused", False, None, None, "Everything has been paused for 1h.", 0)
    lines = [
        *describe_dispatch(status, sdk.TopicPage((topic,), None, 1, topic)),
        *topic_table([topic], None),
        *describe_schedule(schedule),
        schedule_view().row(schedule),
        finding_view().row(everything),
        *frame(Snapshot(status, [topic], [], NOW), (), "", "", None, None),
    ]
    marks = [cell for line in lines for cell in line if cell.style and "paused" in cell.text.lower()]

    assert len(marks) >= 7
    assert {cell.style.split()[-1] for cell in marks} == {WARNING}, marks


def test_top_shows_the_most_harmful_findings_above_the_topics() -> None:
    snapshot = Snapshot(sdk.DispatchStatus(False, "", None, {}), [], [], NOW, findings=[DYING, *[LATE] * 4])

    lines = ["".join(cell.text for cell in line) for line in frame(snapshot, (), "", "", None, None)]

    at = lines.index("✕ pay ments dead-lettered 895 jobs in the last 5 min.")
    assert lines[at + 1 : at + 3] == ["! mail is falling behind."] * 2
    assert lines[at + 3] == "… 2 more need attention. See: pulse attention"
