"""Limits of pulsed, repeated so that pages can show them. A test compares them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}")
WITHOUT_GROUP = "none"
"""The group of dead letters from before groups existed."""
ERROR_GROUP = re.compile(rf"[0-9a-f]{{12}}|{WITHOUT_GROUP}")
LONGEST_SEARCH = 200
LONGEST_LANE = 255
FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MOMENT = datetime(2200, 1, 1, tzinfo=UTC)
MOST_WEIGHT = 1_000
LONGEST_HOLD = timedelta(days=365)
PRIORITIES = (-(2**31), 2**31 - 1)
FURTHER_ATTEMPTS = (1, 1_000)
HISTORY_KEPT = 20
"""How many attempts of a job are stored. docs/figures.md#history-of-attempts"""
ERROR_KEPT = 1_000
"""How many characters of each error are stored; of the last error more."""
