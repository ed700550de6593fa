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

# ---------------------------------------------------------------- waiting and watching

# A job that takes milliseconds is reported at once, one that takes hours is asked for once a second.
WAIT_FIRST_SECONDS = 0.05
WAIT_LONGEST_SECONDS = 1.0
# Faster than anyone reads, slower than a server would notice.
WATCH_INTERVAL = timedelta(seconds=2)
WATCH_SHORTEST = timedelta(milliseconds=200)

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
