"""Every interval and limit of the CLI, each with its reason."""

from __future__ import annotations

from datetime import timedelta

# Long enough for a server that restarts, short enough for a person who has mistyped the address.
CALL_TIMEOUT = timedelta(seconds=5)

# ---------------------------------------------------------------- lists

# A screenful and a bit; who wants more says --limit or --all.
PAGE_SIZE = 50
# The most that the server puts into one page.
LARGEST_PAGE = 1000

# ---------------------------------------------------------------- ids by their beginning

# As git has it: less is a slip of the hand more often than an id.
SHORTEST_PREFIX = 4
# Enough to see where they differ, few enough to stay a sentence.
CANDIDATES_NAMED = 4

# ---------------------------------------------------------------- many jobs at once

# How many of the jobs are shown before the question.
SAMPLE_SHOWN = 3
# In a pipe progress is a line whenever this much more is done, so that a log gets twenty lines at the most.
PROGRESS_STEP = 0.05
# Where nobody knows how many there are, whenever so many more are done.
PROGRESS_JOBS = 10_000

# ---------------------------------------------------------------- waiting and watching

# A job that takes milliseconds is reported at once, one that takes hours is asked for once a second: that is
# how often people want to see how long it runs already. The end itself is noticed when it comes.
WAIT_FIRST_SECONDS = 0.05
WAIT_LONGEST_SECONDS = 1.0
# The most that the server lets one caller watch by name.
LARGEST_WATCH = 1000
# Faster than anyone reads, slower than a server would notice.
WATCH_INTERVAL = timedelta(seconds=2)
WATCH_SHORTEST = timedelta(milliseconds=200)
# How soon `top` notices a key or another size of the window.
KEY_SECONDS = 0.1
# How many refreshes the line of the backlog goes back.
TREND_LENGTH = 24

# ---------------------------------------------------------------- worker --reload

# A save is noticed before the editor's window is left; a tree of a thousand files costs a few milliseconds.
RELOAD_POLL_SECONDS = 0.4
# What a worker that is replaced gets to finish its handlers; then it is told to hand them back.
RELOAD_GRACE_SECONDS = 5.0
# After that it is killed: a handler that blocks for ever must not hold up the next edit.
RELOAD_HURRY_SECONDS = 5.0

# ---------------------------------------------------------------- passwords

# The default of the bcrypt package: a quarter of a second to check on a machine of today.
BCRYPT_COST = 12
# bcrypt reads no further: two passwords that differ only past it would be the same.
PASSWORD_BYTES = 72
