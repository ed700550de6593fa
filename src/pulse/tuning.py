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

# The default page size of lists.
PAGE_SIZE = 50
# A page of 1,000 jobs with long errors fits; gRPC's own default of 4 MiB would not always hold it.
MAX_RECEIVE_BYTES = 16 * MIB
# A peer that vanished without a FIN is detected within 30 s. The server has to allow pings this often.
KEEPALIVE_MILLISECONDS = 20_000
KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000
# By default gRPC waits up to two minutes before it reconnects: far longer than a server takes to restart.
REDIAL_FIRST_MILLISECONDS = 100
REDIAL_LONGEST_MILLISECONDS = 1_000
# The timeout of the diagnosis of a failed handshake. It may exceed the timeout of the caller.
DIAGNOSIS_SECONDS = 2.0
# How long its result is kept: the diagnosis must not double the connection attempts of a fleet.
DIAGNOSIS_GOOD_FOR_SECONDS = 10.0

# ---------------------------------------------------------------- lines

# A call this soon after the answer to the last one opens a line. (docs/adr/0031)
LINE_OPENS_WITHIN_SECONDS = 1.0
# An idle line is closed after this long.
LINE_SILENT_SECONDS = 10.0
# A line that ends without any answer is not opened again at once; calls are made without it. Older servers
# are tried again from time to time, since they may have been upgraded.
LINE_REST_FIRST_SECONDS = 1.0
LINE_REST_LONGEST_SECONDS = 600.0

# ---------------------------------------------------------------- enqueueing

# Batches stay far below the 4 MiB that a gRPC server accepts by default, even with one job too many.
ENQUEUE_BATCH_JOBS = 1_000
ENQUEUE_BATCH_BYTES = 1 * MIB
# One call is on its way to the server while the answer to the other comes back.
ENQUEUES_IN_FLIGHT = 2
# Of enqueue_many: one more than the server commits at a time, so that it never waits for the next.
BULK_BATCHES_IN_FLIGHT = 3
# The server's limits for metadata. A trace context that does not fit is left out.
METADATA_ENTRIES = 64
METADATA_BYTES = 16 * 1024

# ---------------------------------------------------------------- taking jobs

DEFAULT_CONCURRENCY = 20
# What a server that does not say is assumed to use; the welcome message replaces both.
DEFAULT_LEASE_SECONDS = 30.0
DEFAULT_HEARTBEAT_SECONDS = 10.0

# Handlers that never wait run one after the other, this many, then all else in the event loop has a turn:
# reports, the next delivery, the application's own tasks. That is a millisecond of handlers that do nothing;
# fewer at once would spend more on the turns, more would save nothing.
TURN_JOBS = 200
# And not longer than this, if they compute: at least one runs in each turn.
TURN_SECONDS = 0.002

# Work kept ahead of the handlers: covers a report, a claim and a delivery, with room for a slow commit.
PREFETCH_SECONDS = 0.05
# Above this a larger window buys no throughput.
PREFETCH_MOST = 2_000
# What the server takes as a capacity.
WINDOW_MOST = 10_000
# Slower handlers count at once, faster ones are believed slowly: too wide a window is the costlier mistake.
SLOWER_WEIGHT = 0.5
FASTER_WEIGHT = 0.2
# A window that moved by less is not worth telling.
WINDOW_NOTICEABLE = 0.2

RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_LONGEST_SECONDS = 5.0
WELCOME_TIMEOUT_SECONDS = 10.0

# ---------------------------------------------------------------- holding and reporting

CLAIMS_PER_BEAT = 5_000
BEAT_TIMEOUT_SECONDS = 5.0
# A beat that failed is repeated well within the time that the lease has left.
BEAT_RETRY_SECONDS = 1.0

REPORT_BATCH_JOBS = 1_000
REPORT_BATCH_BYTES = 2 * MIB
# One: what finishes meanwhile goes out together next, and a busy server is asked less often.
REPORTS_IN_FLIGHT = 1

# A handler starts within this long after its claim. Later the server is asked first: the topic may be paused,
# the job canceled, or completed by another worker. Delivery and a full window take far less. (docs/adr/0043)
START_WITHIN_SECONDS = 1.0
# The same after the server was asked. With the age of what a server knows of a pause, below two seconds.
CONFIRMED_START_SECONDS = 0.5
# A handler that has run for this long is beaten, so that its attempt counts should the worker die.
FIRST_BEAT_SECONDS = 0.05
# A job that waits this long for its handler is released: it could run elsewhere.
HOLD_SECONDS = 1.0
# How often that is looked at.
HOLD_LOOK_SECONDS = 0.25
CONFIRM_BATCH_JOBS = 1_000
CONFIRMS_IN_FLIGHT = 2

ERROR_BYTES = 8 * 1024
TRACEBACK_FRAMES = 5

# ---------------------------------------------------------------- stopping

DEFAULT_DRAIN_SECONDS = 30.0
# After the server was told to send nothing more: how long silence has to last until the stream is closed.
QUIET_SECONDS = 0.05
QUIET_LONGEST_SECONDS = 1.0
# What a handler gets to clean up after it was cancelled, and what a hurried stop gives its last calls.
CANCEL_GRACE_SECONDS = 2.0
RELEASE_TIMEOUT_SECONDS = 5.0
CLAIMS_PER_RELEASE = 1_000
# How long gRPC gets to deliver the ends of cancelled calls before their event loop may be closed.
SETTLE_SECONDS = 0.02
# What closing may cost an interpreter that exits.
EXIT_TIMEOUT_SECONDS = 2.0
