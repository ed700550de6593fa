from __future__ import annotations

import pulse
from pulse_ui.overview.views import MOST_OF_A_KIND, Severity, findings_view, summarized
from tests.rows import each_row


def finding(
    kind: str = "starving", topic: str | None = "email", worker: str | None = None, *, urgent: bool = True
) -> pulse.Finding:
    return pulse.Finding(kind, urgent, topic, worker, "needs help.", 1.0)


@each_row("urgent, severity", [(True, Severity.PROBLEM), (False, Severity.WARNING)])
def test_an_urgent_finding_is_a_problem(urgent: bool, severity: Severity) -> None:
    (shown,) = findings_view([finding(urgent=urgent)])

    assert (shown.severity, shown.subject, shown.sentence) == (severity, "email", "needs help.")


@each_row(
    "kind, path",
    [
        ("dead", "/dead-letters?topic=email"),
        ("failing", "/jobs?topic=email&status=RETRYING"),
        ("old", "/jobs?topic=email&status=PENDING"),
        ("long", "/jobs?topic=email&status=RUNNING"),
        ("limited", "/topics/email#settings"),
        ("flood", "/topics/email#lanes"),
        ("of a later server", "/jobs?topic=email"),
    ],
)
def test_a_finding_leads_to_the_place_to_act(kind: str, path: str) -> None:
    assert findings_view([finding(kind)])[0].path == path


def test_a_full_disk_has_no_page() -> None:
    assert findings_view([finding("full", None)])[0].path == ""


def test_the_names_of_topics_are_quoted_in_addresses() -> None:
    (shown,) = findings_view([finding("old", "a&status=x/é")])

    assert shown.path == "/jobs?topic=a%26status%3Dx%2F%C3%A9&status=PENDING"


def test_every_finding_has_a_key_of_its_own() -> None:
    found = findings_view([finding(topic=name) for name in "abc"] + [finding("worker", None, "a")])

    assert len({one.key for one in found}) == 4


def test_too_many_of_a_kind_become_one_and_hide_no_other_kind() -> None:
    starving = [finding(topic=f"t{number:02}") for number in range(50)]

    shown = summarized(findings_view([*starving, finding("dead", "dying")]))

    assert len(shown) == MOST_OF_A_KIND + 1
    assert shown[MOST_OF_A_KIND - 1].sentence == "47 more topics have ready jobs and no worker."
    assert shown[-1].subject == "dying"


def test_a_few_of_a_kind_are_listed_one_by_one() -> None:
    few = findings_view([finding(topic=name) for name in "abcd"])

    assert summarized(few) == few
