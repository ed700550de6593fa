"""Intervals, batch sizes and limits of the SDK, each with its reason."""

from __future__ import annotations

MIB = 1024 * 1024

# ---------------------------------------------------------------- calls

# Long enough for a restart of pulsed, short enough for a web request.
DEFAULT_TIMEOUT_SECONDS = 10.0
# One try. A server that accepts a call and never answers must leave time for a second try.
TRY_TIMEOUT_SECONDS = 5.0
RETRY_FIRST_SECONDS = 0.05
RETRY_LONGEST_SECONDS = 1.0
# A wake-up after a commit. Later than this the servers have found the jobs by themselves.
WAKE_TIMEOUT_SECONDS = 1.0

# The default page size of lists.
PAGE_SIZE = 50
# A peer that vanished without a FIN is detected within 30 s. The server has to allow pings this often.
KEEPALIVE_MILLISECONDS = 20_000
KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000
# With several servers, a frozen or unplugged one has to be found soon: another one can take over. Each of
# the two is the time until the ping and the time for its answer. The server has to allow pings this often.
KEEPALIVE_OF_SEVERAL_MILLISECONDS = 1_000
CONNECT_OF_SEVERAL_MILLISECONDS = 1_000
# A client that left its home server goes back at this time at the earliest. The wait grows if its home dies
# again and again, and a worker looks this often.
HOME_FIRST_SECONDS = 5.0
HOME_LONGEST_SECONDS = 60.0
# By default gRPC waits up to two minutes before it reconnects: far longer than a server takes to restart.
REDIAL_FIRST_MILLISECONDS = 100
REDIAL_LONGEST_MILLISECONDS = 1_000
# The timeout of the diagnosis of a failed handshake. It may exceed the timeout of the caller.
DIAGNOSIS_SECONDS = 2.0
# How long its result is kept: the diagnosis must not double the connection attempts of a fleet.
DIAGNOSIS_GOOD_FOR_SECONDS = 10.0

# ---------------------------------------------------------------- lines

# A call this soon after the answer to the last one opens a line. (docs/figures.md#lines)
LINE_OPENS_WITHIN_SECONDS = 1.0
# An idle line is closed after this long.
LINE_SILENT_SECONDS = 10.0
# A line that ends without any answer is not opened again at once; calls are made without it. Older servers
# are tried again from time to time, since they may have been upgraded.
LINE_REST_FIRST_SECONDS = 1.0
LINE_REST_LONGEST_SECONDS = 600.0

# ---------------------------------------------------------------- enqueueing

# Batches stay far below the 4 MiB that a gRPC server accepts by default, even with one job too many.
MESSAGE_BYTES = 3 * MIB
ENQUEUE_BATCH_JOBS = 1_000
ENQUEUE_BATCH_BYTES = 1 * MIB
# One call is on its way to the server while the answer to the other comes back.
ENQUEUES_IN_FLIGHT = 2
# Batches of enqueue_many: one more than the server commits at a time, so that it never waits for
# the next.
BULK_BATCHES_IN_FLIGHT = 3
# A server that ignored columns is sent rows for this long. Then it may have been upgraded.
COLUMNS_REST_SECONDS = 600.0
# The server's limit for a payload.
PAYLOAD_BYTES = 1 * MIB
# The server's limits for metadata. A trace context that does not fit is left out.
METADATA_ENTRIES = 64
METADATA_BYTES = 16 * 1024

# ---------------------------------------------------------------- receiving jobs

# The server takes no more in one request.
TOPICS_PER_DECLARATION = 1_000
# A server refuses schedules at once. If it does not answer for this long, topics are declared first.
DECLARE_SECONDS = 1.0

DEFAULT_CONCURRENCY = 20
# The defaults until the welcome message of the server sets both.
DEFAULT_LEASE_SECONDS = 30.0
DEFAULT_HEARTBEAT_SECONDS = 10.0

# Handlers that never wait run one after the other, this many in a turn. Then other tasks of the event loop
# run: reports, the next delivery, tasks of the application. A turn is a millisecond of empty
# handlers; smaller turns cost more, larger ones save nothing.
TURN_JOBS = 200
# The longest turn of handlers that compute. At least one runs in each turn.
TURN_SECONDS = 0.002

# Prefetch: covers a report, a claim and a delivery, with reserve for a slow commit.
PREFETCH_SECONDS = 0.05
# A larger window does not increase throughput.
PREFETCH_MOST = 2_000
# The server's limit for a capacity.
WINDOW_MOST = 10_000
# Slower handlers count quickly, faster ones slowly: too wide a window is the costlier error.
SLOWER_WEIGHT = 0.5
FASTER_WEIGHT = 0.2
# Smaller changes of the window are not sent.
WINDOW_NOTICEABLE = 0.2

RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_LONGEST_SECONDS = 5.0
WELCOME_TIMEOUT_SECONDS = 10.0

# ---------------------------------------------------------------- holding and reporting

CLAIMS_PER_HEARTBEAT = 5_000
HEARTBEAT_TIMEOUT_SECONDS = 5.0
# A failed heartbeat is repeated well before the lease expires.
HEARTBEAT_RETRY_SECONDS = 1.0

# The newest progress of a job is sent this long after its last heartbeat: at most one write a second.
PROGRESS_SECONDS = 1.0
# Of the progress in one heartbeat or release. Some 5 KiB of a job at the most.
PROGRESS_BATCH_BYTES = 2 * MIB

# Batches of steps. The answer may repeat stored values: this stays far below the 4 MiB of an
# answer.
STEP_BATCH_STEPS = 500
STEP_BATCH_BYTES = 1 * MIB
STEP_BATCHES_IN_FLIGHT = 2
# Of one call. The handler repeats it: its thread notices a stop only between two calls.
STEP_TIMEOUT_SECONDS = 5.0
# Jobs that a handler adds to its workflow in one message: as many as the server takes.
ADDED_JOBS = 1_000

REPORT_BATCH_JOBS = 1_000
REPORT_BATCH_BYTES = 2 * MIB
# One: results that finish during a call share the next call, and a busy server gets fewer calls.
# With two calls a drain was no faster, and each job cost the server 1.8 µs more.
REPORTS_IN_FLIGHT = 1

# A handler starts within this long after its claim. Later the claim is confirmed first: the topic may be
# paused, the job canceled, or completed by another worker. Delivery and a full window take far less.
# (docs/adr/0043)
START_WITHIN_SECONDS = 1.0
# The same after a confirmation was sent, while answers come quickly. Together with the time until a
# server sees a pause, this is below two seconds. It grows with the time of the last answer, up to
# the smaller of the two values below. Until then no other worker gets a job that was canceled.
# (docs/figures.md#canceled-jobs-that-are-retried)
CONFIRMED_START_SECONDS = 0.5
CONFIRMED_START_LONGEST_SECONDS = 7.5
CONFIRMED_START_SHARE = 0.25  # of a lease
# A handler that has run for this long gets its first heartbeat: its attempt counts even if the worker dies.
FIRST_HEARTBEAT_SECONDS = 0.05
# A job that waits this long for a handler is released: it could run elsewhere.
HOLD_SECONDS = 1.0
# How often that is checked.
HOLD_LOOK_SECONDS = 0.25
# A process of `pulse worker` or `run_processes` ends after this much CPU time without any Python
# code: its leases have ended by then, or soon will.
FROZEN_CPU_SECONDS = 30.0
FROZEN_LOOK_SECONDS = 1.0
# A handler whose task was canceled, but not by its worker, has failed if the worker does not begin to stop in
# this time: an event loop that shuts down cancels both.
CANCELED_SECONDS = 1.0
CONFIRM_BATCH_JOBS = 1_000
CONFIRMS_IN_FLIGHT = 2

# ---------------------------------------------------------------- time limits

# How often a thread that waits for an event loop looks up, so that it can be interrupted.
THREAD_LOOK_SECONDS = 0.2
# The time for a handler to end after it was interrupted. Then a process is killed, and anything else is given
# up. Shorter than the grace of the server, so that the report of the time limit comes first.
TIME_LIMIT_GRACE_SECONDS = 5.0
# The pauses between tries to interrupt a thread that is inside of `logging`, or imports.
FIRST_INTERRUPT_SECONDS, LONGEST_INTERRUPT_SECONDS = 0.0005, 0.02
# A deadline that passed this long ago without its timer: a handler blocks the event loop.
BLOCKED_LOOP_SECONDS = 0.5
# The time for a child process to import the application.
CHILD_START_SECONDS = 60.0
# The time for an idle child process to exit, and to detect the end of a dead child process.
CHILD_EXIT_SECONDS = 2.0
# How often it is checked that a child process which has not answered is alive.
CHILD_LOOK_SECONDS = 1.0
# The frames of a stuck handler that are logged and stored.
STACK_FRAMES = 20

# Jobs that are read at a time to learn their verdicts, and how many may wait for that.
VERDICTS_AT_A_TIME = 10
MOST_VERDICTS = 10_000

ERROR_BYTES = 8 * 1024
# Of each error. The first frames are those of the handler, and the last show where the error was raised.
TRACEBACK_FIRST_FRAMES = 5
TRACEBACK_LAST_FRAMES = 10

# ---------------------------------------------------------------- stopping

DEFAULT_DRAIN_SECONDS = 30.0
# A stream is closed once it was quiet for this long, after the server was asked to send no more.
QUIET_SECONDS = 0.05
QUIET_LONGEST_SECONDS = 1.0
# The time for a canceled handler to clean up, and for the last calls of a hurried stop.
CANCEL_GRACE_SECONDS = 2.0
RELEASE_TIMEOUT_SECONDS = 5.0
# Between two releases of a job whose row is locked, when a worker stops. It gives up after the timeout above.
RELEASE_AGAIN_SECONDS = 0.2
CLAIMS_PER_RELEASE = 1_000
# The time for gRPC to deliver the ends of canceled calls before their event loop may be closed.
SETTLE_SECONDS = 0.02
# The time that closing may take when the interpreter exits.
EXIT_TIMEOUT_SECONDS = 2.0

# --- waiting for jobs (jobs/handles.py) ---

# The server's bound on the jobs that one stream waits for, and the jobs in one message.
MOST_AWAITED = 100_000
AWAIT_BATCH_JOBS = 1000
# A stream without a wait is closed after this long: waits of requests to a web application follow each other.
AWAIT_IDLE_SECONDS = 10.0
# After the timeout of a wait: to learn whether any worker takes the job.
AWAIT_REASON_SECONDS = 0.5

# --- workflows (workflows.py, handlers/workflows.py) ---

# A wait for the end of a workflow asks again after this long. The server answers within 60 s.
WORKFLOW_WAIT_SECONDS = 20.0
# The jobs on one page: of a workflow, and of the parents of a job.
WORKFLOW_PAGE_JOBS = 500
