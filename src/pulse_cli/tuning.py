"""Every interval and limit of the CLI, each with its reason."""

from __future__ import annotations

from datetime import timedelta

# Long enough for a restarting server, short enough for a mistyped address.
CALL_TIMEOUT = timedelta(seconds=5)

# A shell waits for it with each press of the tab key.
COMPLETION_TIMEOUT = timedelta(milliseconds=700)

# ---------------------------------------------------------------- lists

# About one screen; --limit and --all show more.
PAGE_SIZE = 50
# The maximum of the server for one page.
LARGEST_PAGE = 1000

# ---------------------------------------------------------------- prefixes of ids

# As in git: a shorter one is more often a typo than an id.
SHORTEST_PREFIX = 4
# Enough to see where they differ, few enough for one sentence.
CANDIDATES_NAMED = 4

# ---------------------------------------------------------------- many jobs at once

# How many jobs the preview shows.
SAMPLE_SHOWN = 3
# In a pipe, progress is one line per this share, so that a log gets at most twenty lines.
PROGRESS_STEP = 0.05
# The same where the total is unknown.
PROGRESS_JOBS = 10_000

# ---------------------------------------------------------------- workflows

# This many equal jobs share a line: fewer fit a screen, with their names.
FOLD_FROM = 10
# A longer tree is not read: then any two equal jobs share a line, and the rest is counted.
TREE_LINES = 200
# A prefix is looked for among this many of the newest workflows: the server searches jobs only.
WORKFLOWS_SEARCHED = 1000
# While a workflow is watched, its jobs are fetched at most this share of the time.
WATCH_SHARE = 0.2

# ---------------------------------------------------------------- limits

# Of a topic, with the most running jobs: `pulse lanes` shows all.
LANES_SHOWN = 10

# ---------------------------------------------------------------- waiting and watching

# A job that takes milliseconds is reported at once; one that takes hours is polled once a second, to update
# the elapsed time. Its end is signaled by the watch.
WAIT_FIRST_SECONDS = 0.05
WAIT_LONGEST_SECONDS = 1.0
# The maximum of the server for one watch by job id.
LARGEST_WATCH = 1000
# Faster than a person reads, and no load for a server.
WATCH_INTERVAL = timedelta(seconds=2)
WATCH_SHORTEST = timedelta(milliseconds=200)
# How soon `top` reacts to a key or a resized window.
KEY_SECONDS = 0.1
# How many refreshes the sparkline of the backlog covers.
TREND_LENGTH = 24

# ---------------------------------------------------------------- worker --reload

# A saved file is noticed within this time; scanning a thousand files takes a few milliseconds.
RELOAD_POLL_SECONDS = 0.4
# The time that a replaced worker has to finish its handlers; then it must release them.
RELOAD_GRACE_SECONDS = 5.0
# After that it is killed: a handler that blocks forever must not delay the reload.
RELOAD_HURRY_SECONDS = 5.0

# ---------------------------------------------------------------- outbox relay

# One call of pulsed, and one commit of the application's database.
OUTBOX_BATCH_JOBS = 500
OUTBOX_BATCH_BYTES = 2 * 1024 * 1024
# The longest that a batch locks its rows: its open transaction delays vacuum.
OUTBOX_BATCH_TIMEOUT = timedelta(seconds=10)
# Of each statement, and of connecting.
OUTBOX_STATEMENT_TIMEOUT = timedelta(seconds=5)
# The longest that a job waits for a look. A look at an empty outbox is one index scan.
OUTBOX_POLL_SECONDS = 0.2
OUTBOX_RETRY_FIRST_SECONDS = 0.2
OUTBOX_RETRY_LONGEST_SECONDS = 5.0
# A relay skips a job this long after pulsed could not store it.
OUTBOX_REST_SECONDS = 2.0
OUTBOX_REPORT_SECONDS = 60.0
# A completed job that is kept shorter may be gone before a relay submits it again.
OUTBOX_KEPT_AT_LEAST = timedelta(hours=1)

# ---------------------------------------------------------------- passwords

# The default of the bcrypt package: about a quarter of a second per check.
BCRYPT_COST = 12
# bcrypt ignores the rest: two passwords that differ only after it would be equal.
PASSWORD_BYTES = 72

# Unfinished jobs of a list whose state the server explains, and how many it takes in one call.
MOST_EXPLAINED = 1000
EXPLAINED_AT_ONCE = 200
