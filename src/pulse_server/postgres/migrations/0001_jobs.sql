-- One row per job: its state, its retry policy and its lease together.

CREATE TABLE pulse.jobs (
    -- Fixed-width columns first: no padding between them.
    id              uuid        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    next_run_at     timestamptz NOT NULL,
    lease_until     timestamptz,
    started_at      timestamptz,              -- of the last attempt
    finished_at     timestamptz,              -- once the status is terminal, whichever it is
    priority        integer     NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    max_attempts    integer     NOT NULL,
    ready           boolean     NOT NULL,     -- may be claimed now; the claim index holds these rows only
    delivered       boolean     NOT NULL DEFAULT false,  -- whether the last attempt is known to have reached a worker
    status          text        NOT NULL,
    topic           text        NOT NULL,
    payload         bytea       NOT NULL,
    locked_by       text,                     -- the worker that holds the lease
    finished_by     text,                     -- the worker of the attempt that ended the job
    idempotency_key text,
    schedule_id     uuid,                     -- lineage; no foreign key: jobs outlive their schedule
    last_error      text,                     -- kept after a later success
    metadata        jsonb,
    history         jsonb,                    -- attempts that were not a success, oldest first, capped

    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_status_is_known
        CHECK (status IN ('PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED')),
    -- A lease exists exactly while the job runs. This is what lets the fences check locked_by and attempts
    -- alone: with the status among their conditions the planner may walk the RUNNING index for every report.
    CONSTRAINT jobs_lease_means_running
        CHECK ((status = 'RUNNING') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (lease_until IS NULL)),
    CONSTRAINT jobs_ready_means_waiting
        CHECK (NOT ready OR status IN ('PENDING', 'RETRYING')),
    CONSTRAINT jobs_finished_means_terminal
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED'))),
    CONSTRAINT jobs_attempts_are_bounded
        CHECK (attempts >= 0 AND attempts <= max_attempts)
) WITH (
    -- Each job is updated at least twice in its life; the new versions find room on the same page.
    fillfactor = 70,
    -- A queue turns its rows over all day. The defaults (a fifth of the table) would let dead entries pile
    -- up at the head of the claim index, where each claim has to step over them.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- claim_batch: the key order is the order of dispatch, over exactly the rows that may be dispatched.
CREATE INDEX jobs_claim ON pulse.jobs (topic, priority DESC, submitted_at, id) WHERE ready;

-- promote_due: waiting rows whose time has not come.
CREATE INDEX jobs_due ON pulse.jobs (next_run_at) WHERE NOT ready AND status IN ('PENDING', 'RETRYING');

-- reap_expired.
CREATE INDEX jobs_expired ON pulse.jobs (lease_until) WHERE status = 'RUNNING';

-- insert_jobs: one job per key and topic.
CREATE UNIQUE INDEX jobs_key ON pulse.jobs (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- list_jobs: newest first, all or what went wrong. Rows that end well never enter the second.
CREATE INDEX jobs_newest ON pulse.jobs (submitted_at DESC, id DESC);
CREATE INDEX jobs_unsuccessful ON pulse.jobs (status, submitted_at DESC, id DESC)
    WHERE status IN ('DEAD_LETTERED', 'CANCELED');

-- The history with one more attempt, capped at the newest 20, each error at 1,000 characters: a job that fails
-- for weeks must not grow without bound. Written on failure only, so that success pays nothing for it.
CREATE FUNCTION pulse.append_attempt(
    history jsonb, attempt integer, worker_id text, started_at timestamptz, outcome text, error text
) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN jsonb_array_length(history) >= 20 THEN history - 0 ELSE COALESCE(history, '[]') END
        || jsonb_build_array(jsonb_build_object(
            'attempt', attempt, 'worker', worker_id, 'started_at', started_at,
            'ended_at', clock_timestamp(), 'outcome', outcome, 'error', left(error, 1000)))
$$;
