"""What pulsed takes and keeps, so that a page can say so at the field. A test holds it in step."""

from __future__ import annotations

import re
from datetime import UTC, datetime

TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}")
WITHOUT_GROUP = "none"
"""What the group of those is called that died before there were groups."""
ERROR_GROUP = re.compile(rf"[0-9a-f]{{12}}|{WITHOUT_GROUP}")
LONGEST_SEARCH = 200
FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MOMENT = datetime(2200, 1, 1, tzinfo=UTC)
PRIORITIES = (-(2**31), 2**31 - 1)
FURTHER_ATTEMPTS = (1, 1_000)
HISTORY_KEPT = 20
"""So many attempts are remembered of a job. ADR-0013"""
ERROR_KEPT = 1_000
"""So many characters of each one's error; of the last error more is remembered."""
