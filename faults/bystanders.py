"""The kinds of faults that may stop what they hold, and nothing else: `rules/bystanders.py` judges them."""

from __future__ import annotations

INTRUDER, FORGER = "intruder", "forger"
CROWD_OF_SCHEDULES, CROWD_OF_TOPICS, CROWD_OF_WORKFLOWS = "many schedules", "many topics", "many workflows"
