"""Floors: where a claim has to look, as far as this server knows. ADR-0055"""

from __future__ import annotations

import pytest

from pulse_server.dispatch.floors import (
    MARGIN_SECONDS,
    MOST_LEVELS,
    MOST_TOPICS_OF_CLAIM,
    TOPICS_REMEMBERED,
    Floors,
)
from pulse_server.jobs.rules import ClaimedJob, Level
from tests.dispatch.fake_claims import claimed


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.001  # time passes between any two looks at it
        return self.now


class Claimer:
    """Floors, and the claims that are made by them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.floors = Floors(self.clock)

    def look(self, *topics: str, last: ClaimedJob | None = None) -> None:
        """A full look that took all jobs, or all up to the last one."""
        sent_at = self.floors.claim_begins(topics)
        self.floors.claimed(topics, [last] if last else [], sent_at, None, is_filled=last is not None)

    def claim(self, *topics: str, last: ClaimedJob | None = None, seconds: float = 0.0) -> bool:
        levels = self.floors.levels(topics)
        assert levels is not None
        sent_at = self.floors.claim_begins(topics)
        self.clock.now += seconds
        jobs = [last] if last else []
        return self.floors.claimed(topics, jobs, sent_at, levels, is_filled=last is not None)

    def ages(self, *topics: str) -> dict[int, float] | None:
        """How far back a claim has to look, by priority, without the margin."""
        levels = self.floors.levels(topics)
        if levels is None:
            return None
        return {level.priority: round(level.age_seconds - MARGIN_SECONDS, 1) for level in levels}


def a_job(priority: int, age_seconds: float | None) -> ClaimedJob:
    return claimed("job", "w1")._replace(priority=priority, age_seconds=age_seconds)


@pytest.fixture
def claimer() -> Claimer:
    return Claimer()


def test_unknown_topic_is_looked_at_as_a_whole(claimer: Claimer) -> None:
    claimer.look("mail")
    assert claimer.ages("mail") == {}
    assert claimer.ages("mail", "image") is None


def test_new_job_is_claimed_from_its_level(claimer: Claimer) -> None:
    claimer.look("mail")
    claimer.clock.now += 7
    claimer.floors.lower(["mail"], [Level("mail", 5, 0.5)])
    # Since the last full look: the announcement of an earlier one may have been lost.
    assert claimer.ages("mail") == {5: 7.0}
    claimer.claim("mail")
    assert claimer.ages("mail") == {5: 0.0}


def test_older_job_lowers_the_floor(claimer: Claimer) -> None:
    claimer.look("mail")
    claimer.floors.lower(["mail"], [Level("mail", 0, 3600.0)])
    assert claimer.ages("mail") == {0: 3600.0}
    claimer.claim("mail")
    assert claimer.ages("mail") == {0: 0.0}


def test_full_claim_lifts_the_floor_to_its_last_job(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(0, 60.0))
    assert claimer.ages("mail") == {0: 60.0}
    assert not claimer.claim("mail", last=a_job(0, 50.0))
    assert claimer.ages("mail") == {0: 50.0}


def test_full_claim_leaves_the_levels_below_its_last_job(claimer: Claimer) -> None:
    claimer.look("mail")
    claimer.floors.lower(["mail"], [Level("mail", priority, 90.0) for priority in (9, 5, 0)])
    claimer.claim("mail", last=a_job(5, 30.0))
    assert claimer.ages("mail") == {9: 0.0, 5: 30.0, 0: 90.0}


def test_full_look_follows_where_lower_priorities_are_unknown(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(5, 60.0))
    claimer.floors.lower(["mail"], [Level("mail", 0, 0.0)])
    assert claimer.ages("mail") == {5: 60.0}
    assert claimer.claim("mail")
    assert claimer.ages("mail") is None


def test_topic_with_unknown_priorities_hands_nothing_over_by_levels(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(5, 60.0))
    assert claimer.floors.levels(["mail"]) is not None
    assert claimer.floors.all_levels(["mail"]) is None
    claimer.floors.forget(["mail"])
    claimer.look("mail")
    assert claimer.floors.all_levels(["mail"]) == []


def test_wake_up_without_a_level_means_a_full_look(claimer: Claimer) -> None:
    claimer.look("mail", "image")
    claimer.floors.lower(["mail", "image"], [Level("image", 0, 0.0)])
    assert claimer.ages("mail") is None
    assert claimer.ages("image") is not None
    claimer.floors.lower(None)
    assert claimer.ages("image") is None


@pytest.mark.parametrize("with_level", [True, False])
def test_what_is_announced_during_a_full_look_is_not_lost(claimer: Claimer, with_level: bool) -> None:
    sent_at = claimer.floors.claim_begins(["mail"])
    claimer.floors.lower(["mail"], [Level("mail", 3, 2.0)] if with_level else [])
    claimer.floors.claimed(["mail"], [], sent_at, None, is_filled=False)
    assert claimer.ages("mail") == ({3: 2.0} if with_level else None)


def test_what_is_announced_during_a_claim_keeps_the_floor_low(claimer: Claimer) -> None:
    claimer.look("mail")
    claimer.floors.lower(["mail"], [Level("mail", 0, 0.0)])
    levels = claimer.floors.levels(["mail"])
    sent_at = claimer.floors.claim_begins(["mail"])
    claimer.floors.lower(["mail"], [Level("mail", 0, 100.0), Level("mail", 8, 0.0)])
    claimer.floors.claimed(["mail"], [], sent_at, levels, is_filled=False)
    assert claimer.ages("mail") == {0: 100.0, 8: 0.0}
    claimer.claim("mail")
    assert claimer.ages("mail") == {0: 0.0, 8: 0.0}


def test_claim_that_took_longer_than_the_margin_is_not_believed(claimer: Claimer) -> None:
    """By the time it began its bounds may have been too high."""
    claimer.look("mail")
    claimer.floors.lower(["mail"], [Level("mail", 0, 0.0)])
    assert claimer.claim("mail", seconds=MARGIN_SECONDS + 0.1)
    assert claimer.ages("mail") is None


def test_slow_full_look_is_believed(claimer: Claimer) -> None:
    sent_at = claimer.floors.claim_begins(["mail"])
    claimer.clock.now += 5
    claimer.floors.claimed(["mail"], [], sent_at, None, is_filled=False)
    claimer.floors.lower(["mail"], [Level("mail", 0, 0.0)])
    assert claimer.ages("mail") == {0: 5.0}


def test_job_from_the_future_does_not_lift_the_floor_above_now(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(0, -3600.0))
    assert claimer.ages("mail") == {0: 0.0}


def test_claim_that_was_cut_short_is_followed_by_a_full_look(claimer: Claimer) -> None:
    """It took a job and failed before its slots were filled. Others may be ready."""
    sent_at = claimer.floors.claim_begins(["mail"])
    assert claimer.floors.claimed(["mail"], [a_job(0, None)], sent_at, None, is_filled=False)
    assert claimer.ages("mail") is None


def test_full_claim_without_the_age_of_its_last_job_means_a_full_look(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(0, None))
    assert claimer.ages("mail") is None


def test_memory_is_bounded_however_many_topics_and_priorities_there_are(claimer: Claimer) -> None:
    for number in range(TOPICS_REMEMBERED + 5):
        claimer.look(f"topic-{number}")
    assert len(claimer.floors._topics) == TOPICS_REMEMBERED
    last = f"topic-{TOPICS_REMEMBERED + 4}"
    for priority in range(1000):
        claimer.floors.lower([last], [Level(last, priority, 0.0)])
        assert len(claimer.floors._topics[last].levels) <= MOST_LEVELS
    assert claimer.ages(last) is None
    assert claimer.ages("topic-0") is None


def test_claim_over_very_many_topics_is_a_full_look(claimer: Claimer) -> None:
    topics = [f"topic-{number}" for number in range(MOST_TOPICS_OF_CLAIM + 1)]
    claimer.look(*topics)
    assert claimer.ages(*topics) is None


def test_levels_of_several_topics_come_with_the_highest_priority_first(claimer: Claimer) -> None:
    claimer.look("mail", "image")
    claimer.floors.lower(["mail", "image"], [Level("mail", 1, 0.0), Level("image", 7, 0.0)])
    levels = claimer.floors.levels(["mail", "image"])
    assert levels is not None
    assert [level[:2] for level in levels] == [("image", 7), ("mail", 1)]


def test_after_a_slow_claim_the_next_ones_look_further_back(claimer: Claimer) -> None:
    claimer.look("mail", last=a_job(0, 5.0))
    before = claimer.ages("mail")

    claimer.claim("mail", last=a_job(0, 5.0), seconds=1.5)
    claimer.look("mail", last=a_job(0, 5.0))
    slow = claimer.ages("mail")
    claimer.clock.now += 61
    claimer.look("mail", last=a_job(0, 5.0))

    assert before == claimer.ages("mail") == {0: 5.0}
    assert slow == {0: pytest.approx(5.0 + 2 * 1.5 - MARGIN_SECONDS)}
