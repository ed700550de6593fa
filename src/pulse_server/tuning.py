"""Every interval, batch size and bound of the server, with its reason.

What an operator may change is an option in settings/options.py; the value here is its default. What a caller
may ask for is bounded in domain/limits.py.
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
STINT_SECONDS = 0.002
# A burst still reaches several workers, should the next job of a fast handler be a slow one.
STINT_MOST = 50
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

# How long another replica may go on asking for work in vain; a claim itself sees the switch at once.
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
# A list that is asked for without a limit. A default gRPC client receives 4 MiB.
WHOLE_LIST_BYTES = 4 * 1024 * 1024 - 1024
# Jobs that a prefix of an id may stand for before it is called ambiguous anyway.
JOBS_FOUND = 10

# Questions at a time that search or count jobs, fewer than READ_CONNECTIONS, and that compute in a thread.
# Then how long the next one waits, and how far a list may skip without being one of the first.
COSTLY_SEARCHES = 3
COSTLY_COMPUTATIONS = 3
QUESTION_TURN = timedelta(seconds=3)
OFFSET_FOR_FREE = 1000

# --- who gets in (docs/adr/0019) ---

# A check of a bcrypt hash takes 90 to 350 ms of a core. One at a time: with two, the first burst of a flood
# took both cores of a small machine for three seconds. Who was let in once is not checked again.
PASSWORD_THREADS = 1
# How many checks may wait for the thread: two or three seconds' worth, less than a call of the SDK has.
PASSWORD_LINE = 8
# Below the threads that move jobs, so that a core that is wanted by both goes to those. Linux only.
PASSWORD_NICENESS = 10
# After its burst an address gets one check in this long: half a check a second, 6 to 18% of a core.
LOGIN_INTERVAL = timedelta(seconds=2)
# Wrong passwords in a row for one user from one address: somebody who mistypes is not locked out.
LOGIN_BURST_PER_USER = 5
# And for all users together, so that another name each time is no way round. Several applications may share
# an address, each with a user of its own, and start at once.
LOGIN_BURST_PER_PEER = 10
# How many addresses, and how many pairs of address and user, are remembered. About 100 bytes each.
LOGINS_REMEMBERED = 10_000
# Requests of callers without a user, which ask for gRPC's health, that are read at a time: 128 MiB at the
# worst, if each is as long as a message may be. And how long one may take; it has a few bytes.
STRANGERS_READ = 4
STRANGER_PATIENCE = timedelta(seconds=1)
# Streams of such callers, who watch gRPC's health: in all, 24 kB each, and from one address. That some were
# refused is logged again after such a pause.
STRANGER_STREAMS = 1000
STRANGER_STREAMS_PER_ADDRESS = 100
STRANGERS_LOGGED = timedelta(minutes=1)
# How long a changed file of users may go unnoticed; SIGHUP has it read at once.
USERS_FILE_INTERVAL = timedelta(seconds=3)
# It is read once it has looked the same for this long: an editor that writes in place takes a moment.
USERS_FILE_SETTLE = timedelta(milliseconds=200)

# --- TLS (docs/adr/0020) ---

# Handshakes have the files looked at no more often than this. A renewal is used that much later.
CERTIFICATE_LOOK_INTERVAL = timedelta(seconds=1)
# Machines renew a month before the end: one that is due this soon has failed, or is up to a person.
CERTIFICATE_WARNING = timedelta(days=14)

# --- retention ---

# Long enough to answer "what happened last week"; a dead letter waits for somebody to come back from holiday.
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

CONNECT_TIMEOUT = timedelta(seconds=5)
# Of that, for each host when the URL names several: a frozen primary must leave time to ask the next one.
HOST_TIMEOUT = timedelta(seconds=2)
# How long a server that starts waits for a database that does not answer yet.
STARTUP_PATIENCE = timedelta(seconds=6)
# Of that, for one try to connect, and between two of them.
STARTUP_TRY = timedelta(seconds=2)
STARTUP_PAUSE = timedelta(milliseconds=200)
# And how long `pulsed check` does: somebody looks on.
CHECK_PATIENCE = timedelta(seconds=2)
# No hot statement takes a tenth of this on a healthy database. Past it the answer is UNAVAILABLE.
STATEMENT_TIMEOUT = timedelta(seconds=5)
# Lists and look-ups: an operator's question may take longer than a claim.
READ_TIMEOUT = timedelta(seconds=15)
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
# How long a change waits for a lock (docs/adr/0042). Our own statements hold theirs for some 30 ms at most.
# Past it, a row that another session has locked is answered for alone, and the rest of the batch goes on.
LOCK_PATIENCE = timedelta(milliseconds=100)
# A row that was found locked is taken to be so for this long: the batch that names it looks first instead of
# waiting, which costs a few round trips.
LOCK_REMEMBERED = timedelta(seconds=10)
# How many such rows are remembered.
LOCKS_REMEMBERED = 10_000
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


# Of the embedded Postgres: enough for a few processes, and beyond what pulsed needs some for psql.
EMBEDDED_LEAST_CONNECTIONS = 100
EMBEDDED_SPARE_CONNECTIONS = 20

# --- migrations (docs/adr/0016, 0022) ---

# Below STATEMENT_TIMEOUT: whoever uses the table queues behind a change of schema that waits, and must not
# fail for it. They get through in the pauses.
MIGRATION_LOCK_TIMEOUT = timedelta(seconds=2)
# For every table after the first, below Postgres's deadlock_timeout (1 s): in a deadlock the migration gives
# up, not the call of a worker or a producer. The first waits longer: past deadlock_timeout an autovacuum that
# holds the table is cancelled.
MIGRATION_FURTHER_LOCK_TIMEOUT = timedelta(milliseconds=500)
MIGRATION_LOCK_PAUSE = timedelta(seconds=1)
MIGRATION_LOCK_TRIES = 10
# Other servers may be at it, with a file that takes its time.
MIGRATION_TURN = timedelta(minutes=5)
# An index over a very large table takes hours; a database that froze must not hold the command for ever.
MIGRATION_TIMEOUT = timedelta(hours=6)

# --- what is observed (docs/adr/0025) ---

# How old the gauges of the database may be: about what a scrape usually waits for.
VITALS_INTERVAL = timedelta(seconds=15)
# A sample rests this many times as long as it took: 5% of one connection, however deep the queue is.
SAMPLE_REST = 20
# As often, for what keeps dead rows from being removed; it is one small statement, and needs no readers.
HORIZON_INTERVAL = timedelta(seconds=15)
# A dump or a report may have its snapshot for that long; one that goes on is forgotten, or does not belong in
# a queue's database. At 1,000 jobs/s a claim takes some 60 ms more by then. Told again when twice as old.
HELD_BACK_PATIENCE = timedelta(minutes=5)
# How soon a load balancer hears that the database went away, or came back.
READY_INTERVAL = timedelta(seconds=2)
# A database that takes longer to answer `SELECT 1` is no use to a worker either.
READY_TIMEOUT = timedelta(seconds=3)
# The schema changes when somebody migrates; asking costs a connection.
SCHEMA_INTERVAL = timedelta(seconds=30)

# --- the HTTP port ---

# What a client has to send its request, and to take the answer; nobody who is well needs it.
HTTP_REQUEST_TIMEOUT = timedelta(seconds=5)
HTTP_ANSWER_TIMEOUT = timedelta(seconds=10)
# Request line and headers. A Prometheus with a long bearer token needs less than half of it.
HTTP_REQUEST_BYTES = 8 * 1024
# A few probes and scrapers at a time; more is a mistake, or worse.
HTTP_CONNECTIONS = 64
# How long a supervisor waits for what one of its processes says.
HTTP_GATHER_TIMEOUT = timedelta(seconds=3)
# A thousand topics make about 10 MB of metrics; a process that sends more is not well.
HTTP_GATHER_BYTES = 64 * 1024 * 1024

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
# Messages of one line that wait for their answers; the next is read once an answer has left. The SDK has few
# under way; who sends a job in each can still have that many share a commit.
LINE_MESSAGES = 32
# And their bytes: of one line, and of all lines of submits or of reports. The next message is read once there
# are fewer.
LINE_BYTES = 4 * 1024 * 1024
LINES_BYTES = 32 * 1024 * 1024
# The memory of the process beyond which lines end, and none is opened. All else stays below it, but for many
# large requests at once. It is looked at this often while lines are open, 15 µs each, and while it is short.
LINES_MEMORY = 320 * 1024 * 1024
LINES_LOOK = timedelta(milliseconds=50)
LINES_SHORT_LOOK = timedelta(milliseconds=500)
# Lines of one connection; the SDK has one for each kind and client.
CONNECTION_LINES = 16
# A message that a worker does not take for this share of a lease ends its stream. What waits behind it is
# leased already, and has to go to another worker before the lease is over. A worker that reads the message
# after all asks the server before it starts a job whose claim is older than a second (docs/adr/0043).
STREAM_WRITE_SHARE = 1 / 3

# --- wake-ups between replicas (docs/adr/0006) ---

NOTIFY_CHANNEL = "pulse_wakeups"
# One NOTIFY per this long at the most: each costs a commit and wakes every replica.
NOTIFY_SPACING = timedelta(milliseconds=20)
# Postgres takes payloads below 8,000 bytes. What does not fit goes into the next message.
NOTIFY_BYTES = 7500
# Messages about ended claims in one round: some 3,000 claims. The rest follows in the next round, so that a
# cancel of 100,000 holds neither the line nor the event loops of the other servers.
NOTIFY_ROUND = 32
# Past so many names "look everywhere" is sent; more would not fit into a message.
NOTIFY_TOPICS = 1000
# Ended claims that may wait for their message, some 20 MB. Past it the other servers look up all they hold.
ENDED_WAITING = 100_000
# A lapsed claim that was never delivered can be made again, with the same attempt, a second later. Its end is
# announced before that or not at all.
LAPSED_KEPT = timedelta(milliseconds=500)
LISTEN_RETRY = timedelta(seconds=2)
# A line on which nothing was said for this long is tried: it may have been cut without a word.
LISTEN_CHECK = timedelta(seconds=15)

# --- what operators see (docs/adr/0026) ---

# How often each server adds its counts to the statistics by the minute.
STATISTICS_INTERVAL = timedelta(seconds=5)
STATISTICS_KEPT = timedelta(days=7)
# Old minutes are deleted once in so many rounds: every ten minutes.
STATISTICS_CLEAN_UP_ROUNDS = 120
# How often each server says who is connected to it, how many silent rounds make it a dead one, and when its
# row goes.
SERVERS_INTERVAL = timedelta(seconds=5)
SERVER_SILENT_ROUNDS = 4
SERVER_FORGOTTEN_AFTER = timedelta(hours=1)
HELD_JOBS_SHOWN = 20
# Of a worker's topics so many are shown, in lists and in the log.
WORKER_TOPICS_SHOWN = 100
# Names of topics in the row of one server, a megabyte. Past them each further set of topics is cut to those
# that are shown.
SERVER_ROW_TOPICS = 50_000
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
# Somebody who watches is told for this long after the last reminder from their server.
WATCH_REMINDER = timedelta(seconds=5)
WATCH_INTEREST = timedelta(seconds=15)
# What is told waits this long for what was to be told before it: the line between servers takes some 30 ms.
WATCH_GATHERING = timedelta(milliseconds=100)
# What a watcher may leave unread. With the gathering it bounds what a busy server spends on one who watches:
# 10,000 transitions a second, more than anybody can read, at some 8 µs.
WATCHER_BACKLOG = 1000
# What one round of messages to the other servers carries, 5,000 a second, and what may wait for its round.
TRANSITIONS_RELAYED = 100
TRANSITIONS_WAITING = 1000
TRANSITION_ERROR_CHARACTERS = 120

# --- the interpreter ---

# New objects after which the collector looks at them. With the default a batch of a thousand jobs alone would
# have it come twice.
YOUNG_OBJECTS = 20_000

# --- stopping ---

# Until the streams are closed and the calls under way are answered; then they are cut.
DRAIN_TIMEOUT = timedelta(seconds=10)
# How long workers may take to leave after they were told that the server is draining.
STREAM_GOODBYE = timedelta(seconds=2)
# What the last words to the database may take: statistics, and that this server is gone. Neither is needed.
FAREWELL_TIMEOUT = timedelta(seconds=1)
# What the last spans get to reach their collector; an exit that waits longer for it would look like a hang.
TRACE_FLUSH_TIMEOUT = timedelta(seconds=2)

# --- several processes on one port (docs/adr/0024) ---

# What a drain may take beyond the drain timeout, the goodbye and the last statement: closing what is open.
DRAIN_SPARE = timedelta(seconds=5)
# A process that dies is replaced at once, nearly: its callers have to go somewhere.
RESTART_FIRST_WAIT = timedelta(milliseconds=100)
# One that dies again and again must not keep a core busy with being started.
RESTART_LONGEST_WAIT = timedelta(seconds=10)
# Having served this long, it is not the start that kills it: the waits begin anew.
RESTART_FORGIVEN_AFTER = timedelta(seconds=60)
