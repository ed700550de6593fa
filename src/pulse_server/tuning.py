"""Every interval, batch size and bound of the server, with its reason.

What an operator may change is a setting of the same name in settings.py; the values here are its default.
"""

from __future__ import annotations

from datetime import timedelta

# --- leases: how a dead worker is noticed (docs/adr/0009, 0010) ---

# Long enough that two lost heartbeats do not cost a job, short enough that a crash is mended within a minute.
LEASE_TTL = timedelta(seconds=30)
# A third of the TTL: two beats may be lost before the lease is.
HEARTBEAT_INTERVAL = timedelta(seconds=10)
# Recovery takes at most TTL + this.
WATCHDOG_INTERVAL = timedelta(seconds=10)
# One statement's worth of reaping; the watchdog goes on at once while it finds full batches.
REAP_BATCH = 1000

# --- dispatch (docs/adr/0003, 0004, 0006) ---

# The floor under the wake-ups: a lost NOTIFY costs at most this much latency.
DISPATCH_INTERVAL = timedelta(milliseconds=500)
# Rows per claim statement. Past a few hundred the cost per row no longer falls, and a larger batch only
# makes the first job of it wait for the last.
CLAIM_BATCH = 500
# A worker of the original contract names no capacity.
ORIGINAL_CAPACITY = 100
# What one stream message carries at the most: well below the 4 MiB that a default gRPC client receives.
STREAM_MESSAGE_JOBS = 500
STREAM_MESSAGE_BYTES = 2 * 1024 * 1024

# --- promotion of delayed and retried jobs (docs/adr/0002) ---

# The longest that a due job waits for the promoter; usually it sleeps exactly until the next one is due.
PROMOTE_INTERVAL = timedelta(milliseconds=500)
# No tighter than this, or a stream of jobs due a millisecond apart would make it spin.
PROMOTE_SHORTEST_SLEEP = timedelta(milliseconds=20)
PROMOTE_BATCH = 1000

# --- schedules (docs/adr/0011, 0018) ---

# A fire is late by up to this; cron knows no seconds, so nobody waits for less.
SCHEDULE_INTERVAL = timedelta(seconds=1)
# Due schedules per statement; a backlog larger than that goes on at once.
SCHEDULE_BATCH = 100
# How often a change is tried again when the schedule fires in the middle of it.
SCHEDULE_CONTENTION = 5

# --- the pause switch (docs/adr/0012) ---

# How long another replica may go on asking for work in vain; a claim itself sees the switch at once.
GATE_INTERVAL = timedelta(seconds=1)

# --- group commit (docs/adr/0007) ---

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
SUBMIT_BATCH = 1000
REPORT_BATCH = 1000
HEARTBEAT_BATCH = 5000
# Two statements in flight keep the database busy while this process prepares the next batch.
SUBMIT_LANES = 2
REPORT_LANES = 2

# --- what a request may hold ---

JOBS_PER_SUBMIT = 10_000
RESULTS_PER_REPORT = 10_000
CLAIMS_PER_HEARTBEAT = 20_000
PAGE_SIZE = 50
# Errors and metadata of one page; a default gRPC client receives 4 MiB.
PAGE_BYTES = 3 * 1024 * 1024
# 1,000 jobs of 10 kB each fit; a single job is held to MAX_PAYLOAD_BYTES.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024

# --- jobs ---

# attempts² seconds between them: five attempts outlast half a minute of trouble.
DEFAULT_MAX_ATTEMPTS = 5

# --- the database ---

CONNECT_TIMEOUT = timedelta(seconds=5)
# How long a server that starts waits for a database that does not answer yet.
STARTUP_PATIENCE = timedelta(seconds=6)
# No hot statement takes a tenth of this on a healthy database. Past it the answer is UNAVAILABLE.
STATEMENT_TIMEOUT = timedelta(seconds=5)
# Lists and look-ups: an operator's question may take longer than a claim.
READ_TIMEOUT = timedelta(seconds=15)
# Submit lanes + report lanes + one each for claim, release, promoter, watchdog, scheduler, gate: no loop
# queues behind a flood of submits.
HOT_CONNECTIONS = 10
# Heartbeats never wait behind a flood of submits.
HEARTBEAT_CONNECTIONS = 2
READ_CONNECTIONS = 4

# --- wake-ups between replicas (docs/adr/0006) ---

NOTIFY_CHANNEL = "pulse_wakeups"
# One NOTIFY per this long at the most: each costs a commit and wakes every replica.
NOTIFY_SPACING = timedelta(milliseconds=20)
# Postgres takes payloads below 8,000 bytes; instead of a longer one "look everywhere" is sent.
NOTIFY_BYTES = 7500
LISTEN_RETRY = timedelta(seconds=2)

# --- stopping ---

# Until the streams are closed and the calls under way are answered; then they are cut.
DRAIN_TIMEOUT = timedelta(seconds=10)
# How long workers may take to leave after they were told that the server is draining.
STREAM_GOODBYE = timedelta(seconds=2)
