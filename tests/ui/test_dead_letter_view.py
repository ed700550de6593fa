"""Dead letters in groups, as the page shows them."""

from __future__ import annotations

import pulse
from pulse_ui.overview.views import dead_letters_view
from tests.ui.jobs_to_show import at, job


def group(
    topic: str = "email", count: int = 3, name: str = "3201d5cec167", error: str = "boom"
) -> pulse.DeadLetterGroup:
    return pulse.DeadLetterGroup(
        topic, name, count, at(0), at(9), job("DEAD_LETTERED", topic=topic, last_error=error)
    )


def letters(*groups: pulse.DeadLetterGroup, left_out: int = 0) -> pulse.DeadLetters:
    return pulse.DeadLetters(groups, left_out, at(10))


def test_a_group_shows_its_error_in_one_line() -> None:
    view = dead_letters_view(letters(group(error="ValueError: no\n\n  File x, line 3")), [], None)

    assert view.groups[0].summary == "ValueError: no"
    assert view.groups[0].has_more


def test_a_group_links_to_its_jobs_only() -> None:
    view = dead_letters_view(letters(group(topic="a&b=c #d")), [], None)

    assert (
        view.groups[0].list_path == "/jobs?status=DEAD_LETTERED&topic=a%26b%3Dc+%23d&error_group=3201d5cec167"
    )


def test_groups_of_two_topics_with_the_same_error_have_places_of_their_own() -> None:
    first, second = dead_letters_view(letters(group("a"), group("b")), [], None).groups

    assert first.anchor != second.anchor


def test_dead_letters_without_a_group_are_marked() -> None:
    assert dead_letters_view(letters(group(name="none")), [], None).groups[0].is_mixed


def test_groups_that_were_left_out_make_the_total_a_lower_bound() -> None:
    view = dead_letters_view(letters(group(count=3), group("report", count=2), left_out=4), [], None)

    assert (view.count, view.is_at_least, view.group_count) == (5, True, 6)


def test_the_chosen_topic_can_be_seen_though_it_has_none() -> None:
    assert dead_letters_view(letters(), [], "empty").topics == (("empty", 0),)
