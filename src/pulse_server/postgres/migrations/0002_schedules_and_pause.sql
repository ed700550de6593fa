-- Schedules: mutable definitions, each with one cursor. And the switches that hold dispatch back.

CREATE TABLE pulse.schedules (
    id           uuid        NOT NULL,
    next_run_at  timestamptz NOT NULL,     -- the cursor: the occurrence that fires next
    last_run_at  timestamptz,              -- the occurrence that fired last
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_at       timestamptz,              -- kind once
    interval_ms  bigint,                   -- kind interval
    priority     integer     NOT NULL DEFAULT 0,
    max_attempts integer     NOT NULL,
    paused       boolean     NOT NULL DEFAULT false,
    kind         text        NOT NULL,
    cron_expr    text,                     -- kind cron
    time_zone    text        NOT NULL DEFAULT 'UTC',
    catch_up     text        NOT NULL DEFAULT 'one',
    name         text,
    topic        text        NOT NULL,
    payload      bytea       NOT NULL,
    metadata     jsonb,

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

-- Lineage: the jobs of a schedule are its history, newest first. Rows without a schedule never enter.
CREATE INDEX jobs_schedule ON pulse.jobs (schedule_id, submitted_at DESC, id DESC)
    WHERE schedule_id IS NOT NULL;

-- The switch for everything: one row, for ever.
CREATE TABLE pulse.dispatch_control (
    id        integer     PRIMARY KEY DEFAULT 1 CONSTRAINT dispatch_control_is_one_row CHECK (id = 1),
    paused    boolean     NOT NULL DEFAULT false,
    reason    text        NOT NULL DEFAULT '',
    paused_at timestamptz,
    CONSTRAINT dispatch_control_tells_since_when CHECK (paused = (paused_at IS NOT NULL))
);
INSERT INTO pulse.dispatch_control (id) VALUES (1);

-- The switches for single topics: a row exists while its topic is paused.
CREATE TABLE pulse.paused_topics (
    topic     text        PRIMARY KEY,
    reason    text        NOT NULL DEFAULT '',
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
