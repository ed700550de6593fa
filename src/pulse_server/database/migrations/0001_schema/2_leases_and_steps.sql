-- Finds leases: each statement that claims jobs writes one row with their ids. A fresh row is read
-- at check_at, 2 s after the claim. Settled rows replace it for the jobs that still run;
-- most have ended by then. Settled rows are read when the leases end. So the table has the claims
-- of about three seconds, and longer runs. Heartbeats do not touch it. ADR-0056
CREATE TABLE pulse.lease_checks (
    check_at timestamptz NOT NULL,            -- no later than the first end of a lease
    settled  boolean     NOT NULL,
    ids      uuid[]      NOT NULL
) WITH (
    -- All rows are deleted soon: the table has few live rows and many dead ones.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 10,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_insert_scale_factor = 10,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- A thousand ids take 16 kB. Compressing them would cost more than the rest of the statement.
ALTER TABLE pulse.lease_checks ALTER COLUMN ids SET STORAGE EXTERNAL;
-- A key would cost every claim an index entry. FULL costs nothing below wal_level = logical; there a deletion logs the row, 16
-- bytes a job.
ALTER TABLE pulse.lease_checks REPLICA IDENTITY FULL;
CREATE INDEX lease_checks_due ON pulse.lease_checks (settled, check_at);

-- Workers whose heartbeats reached a server but could not be stored: a locked row, a full disk, a
-- slow statement. No server reaps their jobs until the time that the heartbeat would have set.
-- ADR-0042
CREATE TABLE pulse.spared_workers (
    worker_id    text        NOT NULL,
    spared_until timestamptz NOT NULL,
    CONSTRAINT spared_workers_pkey PRIMARY KEY (worker_id)
);

-- Throttled keys: the last stored job, which may be deleted, and until when no other is stored.
-- ADR-0066
CREATE TABLE pulse.unique_periods (
    topic  text        NOT NULL,
    key    text        NOT NULL,
    until  timestamptz NOT NULL,
    job_id uuid        NOT NULL,
    CONSTRAINT unique_periods_pkey PRIMARY KEY (topic, key)
) WITH (
    -- A key in frequent use updates its row in place, with room on the page.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
-- forget_periods.
CREATE INDEX unique_periods_over ON pulse.unique_periods (until);

-- Submits in open transactions of applications that found a waiting job with their unique key. That job
-- is not locked, and may have started by the commit. So each commit looks once more, and deletes the
-- row: no row is ever seen by another transaction. The text of the function is in jobs/functions. ADR-0066
CREATE UNLOGGED TABLE pulse.open_duplicates (
    id              uuid    NOT NULL,         -- of the job, if it has to be stored
    id_is_given     boolean NOT NULL,
    topic           text    NOT NULL,
    payload         bytea   NOT NULL,
    priority        integer NOT NULL,
    max_attempts    integer NOT NULL,
    idempotency_key text,
    metadata        jsonb,
    run_at          timestamptz,
    start_within    interval,
    lane            text,
    unique_key      text    NOT NULL,
    unique_scope    text    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
CREATE INDEX open_duplicates_key ON pulse.open_duplicates (topic, unique_key, unique_scope);
CREATE FUNCTION pulse.enqueue_again_v1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER open_duplicates_at_commit AFTER INSERT ON pulse.open_duplicates
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pulse.enqueue_again_v1();

-- Results of a handler's steps, kept for its next attempt. No foreign key on pulse.jobs:
-- completions delete its rows. ADR-0069
CREATE TABLE pulse.job_steps (
    job_id     uuid        NOT NULL,
    name       text        NOT NULL,
    position   integer     NOT NULL,          -- the order of storing
    attempt    integer     NOT NULL,          -- the attempt that stored it, or waits for it
    started_at timestamptz NOT NULL,
    stored_at  timestamptz,                   -- NULL: the signal has not arrived
    until      timestamptz,                   -- when a sleep or a wait ends. NULL: no end, or no wait
    signal_id  uuid,                          -- the signal that was taken
    kind       text        NOT NULL,
    value      bytea,                         -- NULL: a sleep, or a signal that did not arrive in time
    CONSTRAINT job_steps_pkey PRIMARY KEY (job_id, name),
    CONSTRAINT job_steps_kind_is_known CHECK (kind IN ('step', 'sleep', 'signal'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Signals to jobs. A taken signal stays while its job is unfinished: a sender may repeat it.
CREATE TABLE pulse.job_signals (
    id       uuid        NOT NULL,            -- made by the sender
    number   bigint      GENERATED ALWAYS AS IDENTITY,
    job_id   uuid        NOT NULL,
    name     text        NOT NULL,
    value    bytea       NOT NULL,
    sent_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at timestamptz,
    CONSTRAINT job_signals_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- take_signal, in the order of arrival.
CREATE INDEX job_signals_next ON pulse.job_signals (job_id, name, number);
