-- Schedules: mutable definitions, each with one cursor.
CREATE TABLE pulse.schedules (
    id           uuid        NOT NULL,
    next_run_at  timestamptz NOT NULL,        -- the cursor: the occurrence that fires next
    last_run_at  timestamptz,                 -- the occurrence that fired last
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_at       timestamptz,                 -- kind once
    interval_ms  bigint,                      -- kind interval
    priority     integer     NOT NULL DEFAULT 0,
    -- The attempts of its jobs. With attempts_by_policy, the policy of the topic at the time of the
    -- fire comes first, and the number is only a default: of the caller's code for the topic with
    -- max_attempts_is_default, otherwise of the settings.
    max_attempts integer     NOT NULL,
    attempts_by_policy      boolean NOT NULL DEFAULT false,
    max_attempts_is_default boolean NOT NULL DEFAULT false,
    paused       boolean     NOT NULL DEFAULT false,
    kind         text        NOT NULL,
    cron_expr    text,                        -- kind cron
    time_zone    text        NOT NULL DEFAULT 'UTC',
    catch_up     text        NOT NULL DEFAULT 'one',
    name         text,
    topic        text        NOT NULL,
    payload      bytea       NOT NULL,
    metadata     jsonb,
    start_within interval,                    -- how long after its occurrence a job may start; NULL: no limit
    overlap      text        NOT NULL DEFAULT 'allow',  -- if it has an unfinished job: allow, skip, queue
    queued_for   timestamptz,                 -- the occurrence that waits for that job to finish
    declared_by  text,                        -- the user who declared it; no other may replace it. NULL: made without users
    application  text,                        -- the application whose code declares it; NULL: none
    vanished_at  timestamptz,                 -- since when that code no longer declares it
    -- The entries that operators have set, by name: {"cron": {"declared": "0 9 * * *", "by": "ann", "at": …}}, with what
    -- the code declares in their place. NULL: no code declares the schedule. ADR-0086
    overrides    jsonb,

    CONSTRAINT schedules_pkey PRIMARY KEY (id),
    CONSTRAINT schedules_kind_has_its_one_spec CHECK (
        (kind = 'once' AND run_at IS NOT NULL AND interval_ms IS NULL AND cron_expr IS NULL)
        OR (kind = 'interval' AND run_at IS NULL AND interval_ms IS NOT NULL AND cron_expr IS NULL)
        OR (kind = 'cron' AND run_at IS NULL AND interval_ms IS NULL AND cron_expr IS NOT NULL)
    ),
    CONSTRAINT schedules_catch_up_is_known CHECK (catch_up IN ('one', 'skip', 'all')),
    CONSTRAINT schedules_interval_is_positive CHECK (interval_ms > 0)
);
-- due_schedules: one short index read per tick, however many schedules wait.
CREATE INDEX schedules_due ON pulse.schedules (next_run_at) WHERE NOT paused;
-- create_schedule: one schedule per name, so that an application may declare its schedules at every start.
CREATE UNIQUE INDEX schedules_name ON pulse.schedules (name) WHERE name IS NOT NULL;
-- list_schedules.
CREATE INDEX schedules_oldest ON pulse.schedules (created_at, id);
-- declare_schedules: few of a hundred thousand schedules may be declared by code.
CREATE INDEX schedules_application ON pulse.schedules (application) WHERE application IS NOT NULL;
-- queued_schedules.
CREATE INDEX schedules_queued ON pulse.schedules (queued_for) WHERE queued_for IS NOT NULL;

-- The switch for everything: one row, for ever.
CREATE TABLE pulse.dispatch_control (
    id        integer     PRIMARY KEY DEFAULT 1 CONSTRAINT dispatch_control_is_one_row CHECK (id = 1),
    paused    boolean     NOT NULL DEFAULT false,
    reason    text        NOT NULL DEFAULT '',
    paused_at timestamptz,
    paused_by text        NOT NULL DEFAULT '',  -- empty: an open server asks for no user
    -- The settings of the server that started last, for the functions of the interface. ADR-0075
    max_attempts     integer NOT NULL DEFAULT 25,
    max_result_bytes integer NOT NULL DEFAULT 65536,
    max_workflow_jobs integer NOT NULL DEFAULT 10000,
    CONSTRAINT dispatch_control_tells_since_when CHECK (paused = (paused_at IS NOT NULL))
);
INSERT INTO pulse.dispatch_control (id) VALUES (1);

-- The secret of the queue: one row, for ever. From it come the name of the channel between servers, the key of
-- their messages, and the tokens of complete_job. Only roles that serve may read it. ADR-0084
CREATE TABLE pulse.cluster_secret (
    id       integer PRIMARY KEY DEFAULT 1 CONSTRAINT cluster_secret_is_one_row CHECK (id = 1),
    secret   bytea   NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    previous bytea,                           -- before it was replaced: tokens of running jobs stay good
    CONSTRAINT cluster_secret_is_long CHECK (octet_length(secret) = 32)
);
INSERT INTO pulse.cluster_secret DEFAULT VALUES;

-- Jobs that the functions of the interface stored or completed: a row for each call, in the
-- transaction of its caller. It becomes visible with the commit, however late. Servers take the
-- rows, wake dispatch, and notify watchers and waiters. ADR-0075
CREATE TABLE pulse.arrivals (
    oldest      timestamptz NOT NULL,         -- no job of the row was submitted before
    ran_seconds float8,                       -- of the attempt that completed the job. NULL: the jobs are new
    priority    integer,                      -- of the jobs that are ready. NULL: none is
    jobs        integer     NOT NULL,
    attempt     integer,                      -- this and the next two: the claim that completed the job
    run         integer,
    worker_id   text,
    topic       text        NOT NULL,
    replaced_by text,                         -- the role whose enqueue replaced the waiting job of the row
    ids         uuid[]                        -- the first of many
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
ALTER TABLE pulse.arrivals REPLICA IDENTITY FULL;

-- Topics that plain claims and hand-overs skip: an operator has paused them, or they have limits,
-- or both.
CREATE TABLE pulse.barred_topics (
    topic     text        PRIMARY KEY,
    paused    boolean     NOT NULL DEFAULT true,
    limited   boolean     NOT NULL DEFAULT false,  -- has limits: it is claimed by claim_limited alone
    reason    text        NOT NULL DEFAULT '',  -- of the pause
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text        NOT NULL DEFAULT '',
    CONSTRAINT barred_topics_has_a_cause CHECK (paused OR limited)
);

-- What operators have ordered of worker processes: to be quiet, or to stop. No row: it takes jobs.
CREATE TABLE pulse.worker_states (
    worker_id     text        NOT NULL,
    run_id        text        NOT NULL,       -- of the process. Another process of that name takes jobs
    state         text        NOT NULL,
    reason        text        NOT NULL DEFAULT '',
    set_by        text        NOT NULL DEFAULT '',
    set_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing_since timestamptz,                -- since when no server has it as connected
    CONSTRAINT worker_states_pkey PRIMARY KEY (worker_id, run_id),
    CONSTRAINT worker_states_state_is_known CHECK (state IN ('quiet', 'stopping'))
);

-- Rows to lock: each is named for what one transaction at a time may do. Every role that may connect can take
-- any advisory lock, and keep it; a row needs a right on its table. A change of a setting inserts its row and
-- deletes it again, so it is never committed, and another change of the setting waits for the insert. A task
-- of the servers has a row that stays: the others see it and pass it (try_lock_v1).
CREATE TABLE pulse.locks (
    name text NOT NULL,
    CONSTRAINT locks_pkey PRIMARY KEY (name)
);
