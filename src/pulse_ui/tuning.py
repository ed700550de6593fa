"""Every interval, size and limit of the dashboard, with its reason. Sizes of charts are in their views."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

# --- calls to pulsed
CALL_TIMEOUT = timedelta(seconds=4)
"""A user waits for it. Then the page reports pulsed as unavailable and retries."""
START_LOOK = timedelta(seconds=2)
"""At the start, to check whether pulsed has users. If it is unavailable, the pages check again."""
STEP_TIMEOUT = timedelta(seconds=15)
"""For one batch of a background action on many jobs. A timeout leaves its count unknown."""
IDENTITY_AGE = timedelta(seconds=10)
"""A removed user or a changed role takes effect within this time; pulsed itself refuses at once."""

# --- actions on several jobs
CALLS_AT_ONCE = 8
"""Concurrent calls for single jobs: fast enough for a page of jobs, and no load for pulsed."""
OPERATION_WAIT_SECONDS = 0.4
"""A few jobs are done within this time: then the page of the operation starts with the result."""
OPERATION_REFRESH_SECONDS = 1
"""A progress bar that moves every five seconds looks stuck."""
OPERATIONS_KEPT = 20
UNDO_BATCHES_COUNTED = 100
"""Of 500 jobs, before an undo: a second or two. Of more jobs the question says "at least"."""

# --- sessions
SESSION_IDLE = timedelta(minutes=30)
SESSION_LONGEST = timedelta(hours=12)
"""Even with activity: an open laptop does not stay logged in forever."""
SESSIONS = 2_000
"""A session takes a few kilobytes. Sessions without a login are ended first."""
NOTICES = 5

# --- requests of browsers
REQUEST_TIMEOUT = timedelta(seconds=20)
"""For a complete request, without its form. Browsers open some connections in advance."""
FORM_BYTES = 2 * 1024 * 1024
"""A schedule's payload may have 1 MiB, and its quotation marks are escaped."""
FORM_FIELDS = 2_000
FORM_TIMEOUT = timedelta(seconds=60)
"""For all bytes of a form. A slow form holds memory, and a login form needs no session."""
SELECTED_JOBS = 200
"""A page shows 50. To act on more jobs, use a filter."""

# --- logging in
LOGIN_TRIES = 4
LOGIN_TRY_EVERY = timedelta(seconds=6)
"""Four at once, then one every six seconds from each address. pulsed sees one address for all
visitors. From one address it accepts five wrong passwords per user, ten in all, and one more every
two seconds. These limits are lower, so that one visitor cannot lock out all visitors."""
LOGIN_ADDRESSES = 10_000

# --- pages
PAGE_SIZE = 50
JOBS_CONFIRMED = 8
"""Shown as a sample of the jobs of an action."""
FINDINGS_SHOWN = 6
"""The rest is folded away."""
TOPICS_SHOWN = 50
"""On the overview; more on request."""
TOPICS_ASKED = 1_000
"""The busiest topics: the page size of pulsed. Search or paging finds other topics."""
DISPATCH_TOPICS_SHOWN = 200
"""The busiest topics, and all paused topics. An unlisted topic can be paused by name."""
SETTINGS_SHOWN = 500
"""Topics with limits, or with settings of their own. One call asks for the settings of up to 1,000."""
SCHEDULER_VERY_LATE = timedelta(minutes=1)
"""As the findings of pulsed have it."""
FINDINGS_ASKED = 1000
"""All that a server returns: the table of topics marks each of them."""
LANES_SHOWN = 50
"""Lanes of a topic that have waited the longest, or have the most running jobs."""
TOPIC_ROWS = 10
"""Schedules, workers, groups of dead letters and changes on the page of a topic; links lead to all."""
TOPICS_PAGE = 200
"""Page size of the list by name."""
REFRESH_SECONDS = 5
"""How often an open page refreshes without a change event."""
CHANGE_PAUSE = timedelta(seconds=1)
"""Between two change events to one page: a busy queue changes all the time."""
STREAM_HEARTBEAT = timedelta(seconds=15)
"""So that proxies do not close an idle stream."""
WATCH_RETRY = timedelta(seconds=2)
HELD_SHOWN = 8
HELD_SHOWN_AT_LEAST = 3
HELD_ROWS = 160
"""Rows of held jobs on the page of workers: with many workers, each has fewer."""
WORKERS_SHOWN = 200
WORKFLOW_ROWS = 100
"""Jobs of a workflow on one page of its table."""
WORKFLOW_PAGE = 1_000
"""Jobs in one call: the largest page of pulsed."""
WORKFLOW_JOBS_READ = 20_000
"""Jobs of a workflow that are read for its page. A larger workflow is not drawn."""
WORKFLOW_READ_AGE = timedelta(seconds=5)
"""Jobs of a workflow that takes several calls are read again after this time: 10,000 jobs take ten."""
WORKFLOW_READ_SHARE = 5
"""And not before this many times as long as the last read took: a loaded pulsed is read less often."""
WORKFLOWS_READ = 8
"""Large workflows whose jobs are kept for that time."""
SCHEDULES_SHOWN = 25
"""Each needs a call for its last fire, and sometimes one for its next fires; all run concurrently."""
NEXT_FIRES_LISTED = 5
NEXT_FIRES = 10
FIRES_SHOWN = 20
PREVIEWS = 2_000
"""Cron expressions whose next fires are cached until the next fire."""
TOPICS_SUGGESTED = 500

# --- stopping
STOP_GRACE = timedelta(seconds=5)
BACKLOG = 1_024

# --- bounds of pulsed, repeated so that pages can show them; a test compares them
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
