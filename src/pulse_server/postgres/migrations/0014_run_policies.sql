-- Run policies: how the jobs of a topic are retried, how long an attempt may take, and how many of them may end in a
-- lost lease. ADR-0060
--
-- A table of its own: a server of the release before deletes a row of topic_policies whose retention is returned.

-- One row for each topic that an operator or a worker has a policy for. Entries: backoff (first, factor, longest, jitter),
-- max_attempts, timeout, max_crashes; durations in seconds. `declared || overrides` holds, over the settings of the server.
CREATE TABLE pulse.run_policies (
    topic       text        NOT NULL,
    overrides   jsonb       NOT NULL DEFAULT '{}',  -- by operators
    set_by      text        NOT NULL DEFAULT '',
    set_at      timestamptz,
    declared    jsonb       NOT NULL DEFAULT '{}',  -- by the code of a worker
    declared_by text        NOT NULL DEFAULT '',
    declared_at timestamptz,
    CONSTRAINT run_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT run_policies_are_objects CHECK (
        jsonb_typeof(overrides) = 'object' AND jsonb_typeof(declared) = 'object'
    )
);

-- NULL stands for none: a plain job stores nothing for them. No claim writes these columns, and the index names none that
-- a claim writes (ADR-0056).
ALTER TABLE pulse.jobs ADD COLUMN snoozes integer;  -- attempts that were snoozed; max_attempts has grown by one with each
ALTER TABLE pulse.jobs ADD COLUMN crashes integer;  -- attempts that ended in a lost lease, since the last retry by an operator
ALTER TABLE pulse.jobs ADD COLUMN start_by timestamptz;  -- canceled if it has not started by then; NULL once it has started
ALTER TABLE pulse.completed_jobs
    ADD COLUMN snoozes integer,
    ADD COLUMN crashes integer;
-- cancel_unstarted. In words that no other index has (0007).
CREATE INDEX jobs_start_by ON pulse.jobs (start_by)
    WHERE start_by IS NOT NULL AND COALESCE(finished_at, 'infinity') = 'infinity';

-- The jobs of such a schedule have the attempts that the policy of their topic says when it fires. max_attempts has a
-- number all the same, for a server of the release before.
ALTER TABLE pulse.schedules ADD COLUMN attempts_by_policy boolean NOT NULL DEFAULT false;

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz
FROM pulse.completed_jobs AS done;

-- The delay after so many failed attempts, by the backoff of a policy; NULL: their square, in seconds. A retry by an
-- operator continues the count, so both are bounded: the square at three years, the power far above any `longest`.
CREATE FUNCTION pulse.retry_delay(backoff jsonb, failures integer)
RETURNS interval LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN backoff IS NULL THEN LEAST(failures, 10000) ^ 2 * interval '1 second'
        ELSE interval '1 second'
            * LEAST(
                (backoff ->> 'longest')::float8,
                (backoff ->> 'first')::float8
                    * exp(LEAST((GREATEST(failures, 1) - 1) * ln((backoff ->> 'factor')::float8), 200)))
            * (1 + (backoff ->> 'jitter')::float8 * (2 * random() - 1))
    END
$$;
