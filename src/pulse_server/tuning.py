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
# A statement with beats that takes longer may fail: its workers are spared from here on (docs/adr/0042). The
# least of this and a tenth of a lease.
BEAT_SLOW = timedelta(seconds=1)
# How often such workers are recorded, if there are any. The least of this and a twelfth of a lease.
SPARING_INTERVAL = timedelta(milliseconds=500)
# How many of them may wait to be recorded.
SPARED_WORKERS = 10_000
# One statement's worth of reaping; the watchdog goes on at once while it finds full batches.
REAP_BATCH = 1000

# --- dispatch (docs/adr/0003, 0004, 0006) ---

# The floor under the wake-ups: a lost NOTIFY costs at most this much latency.
DISPATCH_INTERVAL = timedelta(milliseconds=500)
# Rows per claim statement. From 500 to 1,000 a drain still gained 5%; a larger batch would only make its
# first job wait for the last, 19 µs for each row.
CLAIM_BATCH = 1000
# A claim that takes longer delays the other groups no more: ten times what a full one takes (docs/adr/0046).
CLAIM_PATIENCE = timedelta(milliseconds=250)
# Statements of dispatch under way at once, if they are slow. The last one is not for groups that failed.
CLAIM_LANES = 3
# How long a group rests after a claim that failed, doubled with each in a row, while others are served.
CLAIM_REST = timedelta(milliseconds=500)
CLAIM_LONGEST_REST = timedelta(seconds=4)
# Claims that may fail between two ticks without one that succeeds: the database is away, and each costs a
# connection.
CLAIM_FAILURES = 4
# Groups that are probed by a claim of their own at each tick while the look at all topics fails.
CLAIM_PROBES = 20
# Few jobs spread over the workers, one for each, unless their handlers are so fast that a message for each
# job would cost more than to run them all: what takes this long together goes to one worker (docs/adr/0033).
BURST_SECONDS = 0.002
# A burst still reaches several workers, should the next job of a fast handler be a slow one.
BURST_MOST = 50
# Topics of all connected workers, counted once for each set of topics: some 1.2 kB each (docs/adr/0038).
TOPICS_OF_WORKERS = 150_000
# A worker of the original contract names no capacity.
ORIGINAL_CAPACITY = 100
# What one stream message carries at the most: well below the 4 MiB that a default gRPC client receives.
STREAM_MESSAGE_JOBS = 1000
STREAM_MESSAGE_BYTES = 2 * 1024 * 1024

# A job whose row is locked is released once it is free. Past these tries its lease expires instead.
RELEASE_TRIES = 20
RELEASE_PAUSE = timedelta(seconds=1)

# --- promotion of delayed and retried jobs (docs/adr/0002) ---

# The longest that a due job waits for the promoter; usually it sleeps exactly until the next one is due.
PROMOTE_INTERVAL = timedelta(milliseconds=500)
# No tighter than this, or a stream of jobs due a millisecond apart would make it spin.
PROMOTE_SHORTEST_SLEEP = timedelta(milliseconds=20)
PROMOTE_BATCH = 1000
# While more is due than a batch: how many jobs each topic gets in its turn, and how many topics one statement
# looks at, due or not, at 5 µs each (docs/adr/0047).
PROMOTE_SHARE = 20
PROMOTE_TOPICS = 2000

# --- schedules (docs/adr/0011, 0018) ---

# A fire is late by up to this. An interval below it is followed at its own pace once its first fire was made.
SCHEDULE_INTERVAL = timedelta(seconds=1)
# Due schedules per statement; a backlog larger than that goes on at once.
SCHEDULE_BATCH = 100
# How often a change is tried again when the schedule fires in the middle of it.
SCHEDULE_CONTENTION = 5

# --- the pause switch (docs/adr/0012) ---

# How long another server may keep claiming without result; a claim itself sees the switch at once.
GATE_INTERVAL = timedelta(seconds=1)
# Of the paused topics so many are named in the log.
PAUSED_TOPICS_SHOWN = 100

# --- group commit (docs/adr/0007) ---

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
SUBMIT_BATCH = 1000
REPORT_BATCH = 1000
HEARTBEAT_BATCH = 5000
# Bytes per statement: payloads and metadata of submits, errors of reports. The driver and Postgres each have
# copies of them while it runs.
COMMIT_BYTES = 8 * 1024 * 1024
# Two statements in flight keep the database busy while this process prepares the next batch.
SUBMIT_LANES = 2
REPORT_LANES = 2

# --- what is answered ---

# Errors and metadata of one page; a default gRPC client receives 4 MiB.
PAGE_BYTES = 3 * 1024 * 1024
# A list that is requested without a limit. A default gRPC client receives 4 MiB.
WHOLE_LIST_BYTES = 4 * 1024 * 1024 - 1024
# Jobs that a prefix of an id may stand for before it is called ambiguous anyway.
JOBS_FOUND = 10

# Calls at a time that search or count jobs, fewer than READ_CONNECTIONS, and that compute in a thread. Then
# how long the next call waits for a slot, and the offset from which a list counts as a search.
COSTLY_SEARCHES = 3
COSTLY_COMPUTATIONS = 3
COSTLY_CALL_TURN = timedelta(seconds=3)
OFFSET_FOR_FREE = 1000

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
# Between two passes, and with it how long a job may be kept beyond its time.
RETENTION_INTERVAL = timedelta(minutes=5)
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
# Between the first rounds of the background loops, most of which come round every second or so: one after the
# other they share a connection or two, together each would open one of its own. A session's first statements
# take some 10 ms, and more if the database is far away.
LOOP_STAGGER = timedelta(milliseconds=50)
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
# A message beyond this is large. The SDK's have 2 MiB at the most, and a payload.
LARGE_REQUEST_BYTES = 4 * 1024 * 1024
# What is parsed in one turn of the event loop, some 10 ms at the worst.
PARSE_TURN_BYTES = 256 * 1024
# Large requests that are read or answered at a time: about 100 MB of them. Then those that turned out to be
# large and wait for their turn, those of new connections, and small ones (docs/adr/0038).
LARGE_REQUESTS = 3
LARGE_REQUESTS_PARKED = 2
NEW_REQUESTS = 3
SMALL_REQUESTS = 64
# Requests that wait to be read, up to 64 KiB of each in a buffer, and for how long. A thousand workers may
# come back at once.
REQUESTS_IN_LINE = 2048
REQUEST_TURN = timedelta(seconds=10)
# How long a request may take to arrive. It is looked at this often; after three looks it is slow, and has to
# give way to others from then on, a large one after ten seconds.
REQUEST_PATIENCE = timedelta(seconds=60)
REQUEST_LOOK = timedelta(milliseconds=50)
REQUEST_SLOW_LOOKS = 3
REQUEST_FAIR_LOOKS = 200
# What slow requests without a slot may take together.
SLOW_REQUESTS_BYTES = 64 * 1024 * 1024
# What a call takes while it is under way: of all callers, 5,000 calls, and of one. A thousand workers of one
# user have up to four each. The request of a stream stays for as long as the stream, in about three copies.
CALL_BYTES = 32 * 1024
CALLS_BYTES = 5000 * CALL_BYTES
CALLS_BYTES_OF_ONE_CALLER = 4000 * CALL_BYTES
REQUEST_COPIES = 3
# Answers that wait to be taken, of all callers and of one; gRPC has a copy of each. A small one is always
# sent.
UNREAD_BYTES = 64 * 1024 * 1024
UNREAD_BYTES_OF_ONE_CALLER = 40 * 1024 * 1024
SMALL_ANSWER_BYTES = 4 * 1024
# Connections of which it is known how large their last request was; about 200 bytes each.
CONNECTIONS_REMEMBERED = 10_000
# What a connection has to become one of HTTP/2, with TLS or without.
HANDSHAKE_TIMEOUT = timedelta(seconds=10)
# Headers of a call: credentials and a trace's context are a few hundred bytes.
MAX_HEADER_BYTES = 16 * 1024
# The SDK pings twice as rarely. More often than this is taken for an attack.
PING_INTERVAL = timedelta(seconds=10)
# And the server pings who says nothing: a worker whose host vanished hangs up no more.
KEEPALIVE_INTERVAL = timedelta(seconds=30)
KEEPALIVE_TIMEOUT = timedelta(seconds=10)
# A worker has a stream and is never idle; a producer that had nothing to say connects again unnoticed.
CONNECTION_IDLE = timedelta(minutes=15)
# Calls at once on one connection; a client that has more lets them wait, on its own side.
CONNECTION_STREAMS = 1000
# A message that a worker does not take for this share of a lease ends its stream. What waits behind it is
# leased already, and has to go to another worker before the lease is over. A worker that reads the message
# after all asks the server before it starts a job whose claim is older than a second (docs/adr/0043).
STREAM_WRITE_SHARE = 1 / 3

# --- what operators see (docs/adr/0026) ---

# How often each server adds its counts to the statistics by the minute.
STATISTICS_INTERVAL = timedelta(seconds=5)
STATISTICS_KEPT = timedelta(days=7)
# Old minutes are deleted once in so many rounds: every ten minutes.
STATISTICS_CLEAN_UP_ROUNDS = 120
# How often each server records its connected workers, how many missed rounds make it silent, and when its row
# is deleted.
SERVERS_INTERVAL = timedelta(seconds=5)
SERVER_SILENT_ROUNDS = 4
SERVER_FORGOTTEN_AFTER = timedelta(hours=1)
HELD_JOBS_SHOWN = 20
# Of a worker's topics so many are shown, in lists and in the log.
WORKER_TOPICS_SHOWN = 100
# What is counted or converted in one turn of the event loop: some 5 ms.
TURN_ENTRIES = 1000
TURN_VIEWS = 100
# A count of all topics serves everyone for this long, and for SAMPLE_REST times as long as it took. So does
# what was read of the minutes.
TOPICS_SAMPLE_AGE = timedelta(seconds=1)
# So many questions about minutes, each for a topic and a length, have an answer that is kept; a day of one
# topic takes 0.5 MB.
SPANS_REMEMBERED = 32
# So many counts, each of a topic or of all, are kept; one takes PAGE_BYTES at the most.
DEAD_LETTER_COUNTS_REMEMBERED = 8
# Other servers send transitions for this long after the last reminder that a server has watchers.
WATCH_REMINDER = timedelta(seconds=5)
WATCH_INTEREST = timedelta(seconds=15)
# Transitions wait this long for earlier ones of other servers: the line between servers takes some 30 ms.
WATCH_GATHERING = timedelta(milliseconds=100)
# What a watcher may leave unread. With the gathering it bounds what a busy server spends on one who watches:
# 10,000 transitions a second, more than anybody can read, at some 8 µs.
WATCHER_BACKLOG = 1000
TRANSITION_ERROR_CHARACTERS = 120

# --- stopping ---

# Until the streams are closed and the calls under way are answered; then they are cut.
DRAIN_TIMEOUT = timedelta(seconds=10)
# How long workers may take to leave after the message that the server is draining.
STREAM_GOODBYE = timedelta(seconds=2)
# For the last statements: the statistics, and the end of this server. Neither is needed.
FAREWELL_TIMEOUT = timedelta(seconds=1)
