"""Every interval, size and limit of the dashboard, with its reason.

What counts as trouble is in views/attention.py, what pulsed takes is in views/limits.py; how charts and
timelines are drawn, in their views.
"""

from __future__ import annotations

from datetime import timedelta

# --- calls to pulsed
CALL_TIMEOUT = timedelta(seconds=4)
"""A person waits for it. Whoever is down longer is told as down, and the page tries again by itself."""
START_LOOK = timedelta(seconds=2)
"""At the start, for the question whether pulsed is open. If it is away, the pages ask again."""
STEP_TIMEOUT = timedelta(seconds=15)
"""Of one batch of an action on many jobs: nobody waits for it, and giving up leaves its number unknown."""
IDENTITY_AGE = timedelta(seconds=10)
"""A user who was removed, or whose role changed, notices within that time; pulsed itself refuses at once."""

# --- actions on several jobs
CALLS_AT_ONCE = 8
"""Calls for single jobs that are under way at a time: fast enough for a page of them, and no burden."""
OPERATION_WAIT_SECONDS = 0.4
"""Seconds. A few jobs are done in no time: then the page of the operation begins with how it ended."""
OPERATION_REFRESH_SECONDS = 1
"""A bar that moves every five seconds looks stuck."""
OPERATIONS_KEPT = 20

# --- sessions
SESSION_IDLE = timedelta(minutes=30)
SESSION_LONGEST = timedelta(hours=12)
"""However busy: a laptop that is left open is not logged in for ever."""
SESSIONS = 2_000
"""Of a few kilobytes each. Strangers' go first when there are more."""
NOTICES = 5

# --- what a browser may send
REQUEST_TIMEOUT = timedelta(seconds=20)
"""Until a connection has a whole request, but for its form. Browsers open some in advance, and others."""
FORM_BYTES = 2 * 1024 * 1024
"""A schedule's payload may have 1 MiB, and its quotation marks are escaped."""
FORM_FIELDS = 2_000
FORM_TIMEOUT = timedelta(seconds=60)
"""Until its last byte. Whoever sends one drop by drop holds memory, and anybody may send a login."""
SELECTED_JOBS = 200
"""A page shows 50. What is more goes by filter."""

# --- logging in
LOGIN_TRIES = 4
LOGIN_TRY_EVERY = timedelta(seconds=6)
"""Four at once, then one every six seconds from each address. To pulsed all visitors are one address, for
which it takes five wrong passwords of a user and ten in all, and one more every two seconds: less than that,
so that one stranger does not use it up for everyone."""
LOGIN_ADDRESSES = 10_000

# --- pages
PAGE_SIZE = 50
JOBS_CONFIRMED = 8
"""Shown as examples of what an action is about."""
FINDINGS_SHOWN = 6
"""The rest is folded away: whoever has that many problems starts with the first."""
TOPICS_SHOWN = 50
"""On the overview; more when a visitor asks for them."""
TOPICS_ASKED = 1_000
"""The busiest: what pulsed puts on one page. All others are found by search, or page by page."""
DISPATCH_TOPICS_SHOWN = 200
"""Of the busiest topics, besides all that are paused. A topic that is not listed is paused by its name."""
TOPICS_PAGE = 200
"""Of a list by name, where there are more than that."""
REFRESH_SECONDS = 5
"""How often an open page is brought up to date when nothing tells it to."""
CHANGE_PAUSE = timedelta(seconds=1)
"""Between two pieces of news to one page: a busy queue changes all the time, and nobody reads faster."""
STREAM_HEARTBEAT = timedelta(seconds=15)
"""So that proxies do not take a quiet stream for a dead one."""
WATCH_RETRY = timedelta(seconds=2)
HELD_SHOWN = 8
HELD_SHOWN_AT_LEAST = 3
HELD_ROWS = 160
"""Of held jobs on the page of workers: with many workers, fewer of each."""
WORKERS_SHOWN = 200
SCHEDULES_SHOWN = 25
"""Each asks for its last fire, and a cron now and then for its next ones; all of them at once."""
NEXT_FIRES_LISTED = 5
NEXT_FIRES = 10
FIRES_SHOWN = 20
PREVIEWS = 2_000
"""Cron expressions whose next fires are remembered until the first of them comes."""
TOPICS_SUGGESTED = 500

# --- stopping
STOP_GRACE = timedelta(seconds=5)
BACKLOG = 1_024
