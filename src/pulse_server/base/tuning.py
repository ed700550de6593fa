"""Intervals, sizes and bounds that several modules share, and the defaults of options, with their reasons.

A constant with one user is defined beside it. An operator sets the options in settings/options.py.
base/bounds.py bounds the values that a caller may request.
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

# --- dispatch (docs/adr/0003, 0004, 0006) ---

# The floor under the wake-ups: a lost NOTIFY costs at most this much latency.
DISPATCH_INTERVAL = timedelta(milliseconds=500)

# --- group commit (docs/adr/0007) ---

# Bytes per statement: payloads and metadata of submits, errors of reports. The driver and Postgres each have
# copies of them while it runs.
COMMIT_BYTES = 8 * 1024 * 1024

# --- TLS (docs/figures.md#certificates) ---

# Machines renew a month before the end: one that is due this soon has failed, or is up to a person.
CERTIFICATE_WARNING = timedelta(days=14)

# --- retention ---

# Long enough to answer "what happened last week"; a dead letter waits until an operator is back from holiday.
RETENTION_COMPLETED = timedelta(days=7)
RETENTION_CANCELED = timedelta(days=7)
RETENTION_DEAD_LETTERED = timedelta(days=30)
RETENTION_AUDIT = timedelta(days=90)
# After a retention was shortened: to notice a slip, and to set the longer one again.
RETENTION_GRACE = timedelta(hours=1)

# --- runs (docs/adr/0060) ---

# With these delays 25 attempts outlast a day of trouble. They are spread: jobs that failed together would
# meet again at each retry. docs/figures.md#retry-delays
MAX_ATTEMPTS = 25
BACKOFF = "first=1s,factor=2,longest=2h,jitter=0.2"
# A job that ends five workers is not the victim.
MAX_CRASHES = 5
# Bounds of one job: more steps than the history of an attempt can show, and about the bytes of a
# payload.
MAX_STEPS = 1000
MAX_STEP_BYTES = 1024 * 1024
# Jobs of one workflow.
MAX_WORKFLOW_JOBS = 10_000

# The largest result of a handler: an answer, not the data. Results are kept as long as their jobs.
MAX_RESULT_BYTES = 64 * 1024

# --- the database ---

# No hot statement takes a tenth of this on a healthy database. Past it the answer is UNAVAILABLE.
STATEMENT_TIMEOUT = timedelta(seconds=5)
# Submit slots + report slots + one each for claim, release, promoter, watchdog, scheduler, gate,
# janitor: no loop queues behind a flood of submits. Further claims run only while one is slow, and
# use idle connections.
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
    """The most connections of one process: its pools, and without a pooler one that listens."""
    pools = (
        HOT_CONNECTIONS,
        HEARTBEAT_CONNECTIONS,
        OPERATOR_CONNECTIONS,
        READ_CONNECTIONS,
        WATCH_CONNECTIONS,
        PROBE_CONNECTIONS,
    )
    return sum(pools) + (0 if behind_pooler else 1)


# --- samples (docs/figures.md#vitals) ---

# A sample rests this many times as long as it took: 5% of one connection, however deep the queue is.
SAMPLE_REST = 20

# --- what one connection of the gRPC port may take ---

# The default of gRPC, which clients in every language receive. Messages of the SDK and of pulsed stay below
# 3 MiB.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# --- what operators see (docs/figures.md#lists-counts-and-watchers) ---

# Lists and the log show at most this many topics of a worker.
WORKER_TOPICS_SHOWN = 100

# --- stopping ---

# Time to close the streams and answer the calls under way. Then they are cut.
DRAIN_TIMEOUT = timedelta(seconds=10)
# How long workers may take to leave after the message that the server is draining.
STREAM_GOODBYE = timedelta(seconds=2)
