-- Steps of jobs: what a handler has done so far, kept for its next attempt; sleeps, and signals that it waits for. ADR-0069
--
-- No foreign key on pulse.jobs: completions delete its rows (0012).

-- NULL stands for none: a plain job stores nothing for them. No claim writes these columns, and none stands in an index.
ALTER TABLE pulse.jobs ADD COLUMN steps integer;        -- rows in job_steps. NULL: none, nor in job_signals
ALTER TABLE pulse.jobs ADD COLUMN step_bytes integer;   -- of the steps
ALTER TABLE pulse.jobs ADD COLUMN signals integer;      -- sent, since the job was submitted or started afresh. NULL: none
ALTER TABLE pulse.jobs ADD COLUMN signal_bytes integer; -- of the signals
ALTER TABLE pulse.jobs ADD COLUMN suspensions integer;  -- attempts that a sleep or a signal suspended; `snoozes` has them too
ALTER TABLE pulse.jobs ADD COLUMN waits_for text;       -- signals that end its wait, one in each line; '': it sleeps. Until an attempt ends otherwise
ALTER TABLE pulse.completed_jobs
    ADD COLUMN suspensions integer,
    ADD COLUMN timeline    jsonb;    -- the steps without their values

CREATE TABLE pulse.job_steps (
    job_id     uuid        NOT NULL,
    name       text        NOT NULL,
    position   integer     NOT NULL,     -- in the order in which they were stored
    attempt    integer     NOT NULL,     -- that stored it, or waits for it
    started_at timestamptz NOT NULL,
    stored_at  timestamptz,              -- NULL: of a signal that has not come yet
    until      timestamptz,              -- when a sleep or the wait for a signal ends. NULL: none, or it has no end
    signal_id  uuid,                     -- the signal that was taken
    kind       text        NOT NULL,
    value      bytea,                    -- NULL: of a sleep, and of a signal that did not come in time
    CONSTRAINT job_steps_pkey PRIMARY KEY (job_id, name),
    CONSTRAINT job_steps_kind_is_known CHECK (kind IN ('step', 'sleep', 'signal'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Signals to jobs. One that was taken stays for as long as its job is unfinished: a sender may repeat it.
CREATE TABLE pulse.job_signals (
    id       uuid        NOT NULL,       -- made by the sender
    number   bigint      GENERATED ALWAYS AS IDENTITY,
    job_id   uuid        NOT NULL,
    name     text        NOT NULL,
    value    bytea       NOT NULL,
    sent_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at timestamptz,
    CONSTRAINT job_signals_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- take_signal, in the order in which they came.
CREATE INDEX job_signals_next ON pulse.job_signals (job_id, name, number);

-- Whether a signal of these names, one in each line, waits to be taken, as of now and not of the snapshot of the statement
-- that asks: that one has locked the job, and a signal that it waited for may have been committed since.
CREATE FUNCTION pulse.has_signal(of_job uuid, of_names text)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM pulse.job_signals AS signal
        WHERE signal.job_id = of_job AND signal.name = ANY(string_to_array(of_names, E'\n')) AND signal.taken_at IS NULL
    );
END $$;

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane, job.result,
       job.progress, job.steps, job.suspensions, job.waits_for
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result,
       NULL::jsonb, jsonb_array_length(done.timeline), done.suspensions, NULL::text
FROM pulse.completed_jobs AS done;
