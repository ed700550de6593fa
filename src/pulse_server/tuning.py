"""Intervals, sizes and bounds that several modules share, and the defaults of options, with their reasons.

A constant with one user is defined beside it. An operator sets the options in settings/options.py. What a
caller may request is bounded in domain/limits.py.
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
# Of the time that a worker gives a heartbeat: the rest is for the answer that the database has none yet.
BEAT_ANSWER_SHARE = 0.8
# How often spared workers are recorded, if there are any. The least of this and a twelfth of a lease.
SPARING_INTERVAL = timedelta(milliseconds=500)
# How many of them may wait to be recorded.
SPARED_WORKERS = 10_000

# --- dispatch (docs/adr/0003, 0004, 0006) ---

# The floor under the wake-ups: a lost NOTIFY costs at most this much latency.
DISPATCH_INTERVAL = timedelta(milliseconds=500)
# Rows per claim statement. From 500 to 1,000 a drain still gained 5%; a larger batch would only make its
# first job wait for the last, 19 µs for each row.
CLAIM_BATCH = 1000
# Statements of dispatch under way at once, if they are slow. The last one is not for groups that failed.
CLAIM_LANES = 3
# A worker of the original contract names no capacity.
ORIGINAL_CAPACITY = 100

# A job whose row is locked is released once it is free. Past these tries its lease expires instead.
RELEASE_TRIES = 20
RELEASE_PAUSE = timedelta(seconds=1)

# --- group commit (docs/adr/0007) ---

# Bytes per statement: payloads and metadata of submits, errors of reports. The driver and Postgres each have
# copies of them while it runs.
COMMIT_BYTES = 8 * 1024 * 1024

# --- TLS (docs/adr/0020) ---

# Machines renew a month before the end: one that is due this soon has failed, or is up to a person.
CERTIFICATE_WARNING = timedelta(days=14)

# --- retention ---

# Long enough to answer "what happened last week"; a dead letter waits until an operator is back from holiday.
RETENTION_COMPLETED = timedelta(days=7)
RETENTION_CANCELED = timedelta(days=7)
RETENTION_DEAD_LETTERED = timedelta(days=30)
# Rows looked at per statement, deleted or not: 20 ms of work if all of them go, 4 ms if none.
RETENTION_BATCH = 1000
# A pass goes on from where the last one ended. What it passed over, because it was not finished yet or only
# just, is found when the walk starts over.
RETENTION_START_OVER = timedelta(hours=1)
# Of one connection's time, however much there is to delete: at 18 ms a batch 14,000 jobs/s, which is what one
# server completes. And the shortest pause between two statements.
RETENTION_SHARE = 0.25
RETENTION_PAUSE = timedelta(milliseconds=50)

# --- the database ---

# How long a server that starts waits for a database that does not answer yet.
STARTUP_PATIENCE = timedelta(seconds=6)
# No hot statement takes a tenth of this on a healthy database. Past it the answer is UNAVAILABLE.
STATEMENT_TIMEOUT = timedelta(seconds=5)
# Submit lanes + report lanes + one each for claim, release, promoter, watchdog, scheduler, gate, janitor: no
# loop queues behind a flood of submits. Further claims are made only while one is slow, and use what is idle.
HOT_CONNECTIONS = 11
# Heartbeats never wait behind a flood of submits.
HEARTBEAT_CONNECTIONS = 2
# Nor do submits, claims and reports behind the actions of operators, however many act at once.
OPERATOR_CONNECTIONS = 2
READ_CONNECTIONS = 4
# To sample the vitals, one statement after the other.
WATCH_CONNECTIONS = 1
# Whether the database answers must be known while a sample takes its time.
PROBE_CONNECTIONS = 1


def connections_of_a_process(behind_pooler: bool = False) -> int:
    """The most that one process opens: its pools, and a session that listens where there is no pooler."""
    pools = (
        HOT_CONNECTIONS,
        HEARTBEAT_CONNECTIONS,
        OPERATOR_CONNECTIONS,
        READ_CONNECTIONS,
        WATCH_CONNECTIONS,
        PROBE_CONNECTIONS,
    )
    return sum(pools) + (0 if behind_pooler else 1)


# --- what is observed (docs/adr/0025) ---

# A sample rests this many times as long as it took: 5% of one connection, however deep the queue is.
SAMPLE_REST = 20

# --- what one connection of the gRPC port may take ---

# 1,000 jobs of 10 kB each fit; a single job is held to MAX_PAYLOAD_BYTES.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
# A message that a worker does not take for this share of a lease ends its stream. What waits behind it is
# leased already, and has to go to another worker before the lease is over. A worker that reads the message
# after all asks the server before it starts a job whose claim is older than a second (docs/adr/0043).
STREAM_WRITE_SHARE = 1 / 3

# --- what operators see (docs/adr/0026) ---

# Of a worker's topics so many are shown, in lists and in the log.
WORKER_TOPICS_SHOWN = 100

# --- stopping ---

# Until the streams are closed and the calls under way are answered; then they are cut.
DRAIN_TIMEOUT = timedelta(seconds=10)
# How long workers may take to leave after the message that the server is draining.
STREAM_GOODBYE = timedelta(seconds=2)
