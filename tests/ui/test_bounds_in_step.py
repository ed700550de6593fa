"""What the dashboard knows of pulsed without asking it: copies, held in step with the originals."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import get_args

import pulse
from pulse_server.base import bounds
from pulse_server.base import bounds as of_pulsed
from pulse_server.jobs.rules import LIVE, REDRIVABLE, TERMINAL, Outcome
from pulse_server.topics import rules
from pulse_ui import tuning
from pulse_ui.jobs.actions import ACTIONS
from pulse_ui.jobs.views import OUTCOMES
from pulse_ui.schedules.views import CATCH_UPS, OVERLAPS


def test_limits_are_those_of_pulsed() -> None:
    assert tuning.LONGEST_SEARCH == of_pulsed.MAX_SEARCH_LENGTH
    assert tuning.LONGEST_LANE == of_pulsed.MAX_KEY_LENGTH
    assert tuning.LAST_MOMENT == of_pulsed.LAST_MOMENT
    assert tuning.FURTHER_ATTEMPTS == (1, of_pulsed.MAX_ATTEMPTS)
    assert tuning.MOST_WEIGHT == rules.MAX_WEIGHT
    assert tuning.LONGEST_HOLD == rules.LONGEST_HOLD
    assert tuning.WITHOUT_GROUP == bounds.WITHOUT_GROUP


def test_topics_are_those_that_pulsed_takes() -> None:
    longest = "x" * of_pulsed.MAX_TOPIC_LENGTH
    for topic in ("a", "a.b_c-d:e/f", "9", longest, f"{longest}x", "", "-a", "a b", "é"):
        try:
            is_taken = of_pulsed.check_topic(topic) == topic
        except of_pulsed.InvalidArgument:
            is_taken = False
        assert bool(tuning.TOPIC.fullmatch(topic)) is is_taken, topic


def test_history_is_as_long_as_the_database_keeps_it() -> None:
    functions = files("pulse_server.jobs") / "functions"
    text = (functions / "with_attempt_v1.sql").read_text(encoding="utf-8")
    assert re.findall(r"jsonb_array_length\(history\) >= (\d+)", text) == [str(tuning.HISTORY_KEPT)]
    assert re.findall(r"left\(error, (\d+)\)", text) == [str(tuning.ERROR_KEPT)]


def test_every_outcome_has_its_word_and_mark() -> None:
    assert set(OUTCOMES) == {*Outcome, "completed", "running", "due", "waiting"}


def test_actions_apply_to_the_same_statuses_as_in_pulsed() -> None:
    taken = {name: set(action.statuses) for name, action in ACTIONS.items()}
    assert taken == {
        "cancel": set(LIVE),
        "prioritize": set(LIVE),
        "retry": set(REDRIVABLE),
        "delete": set(TERMINAL),
    }


def test_every_catch_up_can_be_chosen() -> None:
    assert set(get_args(pulse.CatchUp)) == set(CATCH_UPS)


def test_every_overlap_can_be_chosen() -> None:
    assert set(get_args(pulse.Overlap)) == set(OVERLAPS)
