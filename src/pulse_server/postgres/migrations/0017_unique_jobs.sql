-- Unique jobs: at most one job of a topic and key waits, lives, or is stored in a period. Schedules that do not fire
-- while a job of theirs is unfinished. ADR-0066

-- NULL stands for none: a plain job stores nothing for them, and no CHECK looks at them, because a claim would pay for it.
ALTER TABLE pulse.jobs ADD COLUMN unique_key text;    -- as submitted; stays when it no longer holds
ALTER TABLE pulse.jobs ADD COLUMN unique_scope text;  -- waiting, live; NULL: the key does not hold, or no longer
ALTER TABLE pulse.completed_jobs ADD COLUMN unique_key text;

-- The arbiter of racing submits. Nothing that a claim, a heartbeat or a release writes stands in it (ADR-0056): a job that
-- has started keeps its entry for `waiting` until a submit that meets it there clears its unique_scope.
CREATE UNIQUE INDEX jobs_unique ON pulse.jobs (topic, unique_key, unique_scope)
    WHERE unique_scope IS NOT NULL AND finished_at IS NULL;

-- Throttled keys: the job that was stored last, which may be gone, and until when no other is stored.
CREATE TABLE pulse.unique_periods (
    topic  text        NOT NULL,
    key    text        NOT NULL,
    until  timestamptz NOT NULL,
    job_id uuid        NOT NULL,
    CONSTRAINT unique_periods_pkey PRIMARY KEY (topic, key)
) WITH (
    -- A key that is used again and again updates its row in place, with room on the page.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
-- forget_periods.
CREATE INDEX unique_periods_over ON pulse.unique_periods (until);

-- The second look of a statement that inserts throttled jobs, called once after its last row: takes the period of each
-- key, or removes the job that was inserted if the period of another is not over. Returns the ids of those. The row of a
-- key is the lock that racing submits wait for; rows are taken in one order. Each query of a VOLATILE function has a
-- snapshot of its own, and sees what the sessions before it committed.
CREATE FUNCTION pulse.throttled_among(new_ids uuid[], new_topics text[], new_keys text[], periods interval[])
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    new    record;
    refused uuid[] := '{}';
BEGIN
    FOR new IN
        SELECT given.*
        FROM unnest(new_ids, new_topics, new_keys, periods) AS given (id, topic, key, period)
        ORDER BY given.topic, given.key, given.id
    LOOP
        INSERT INTO pulse.unique_periods AS known (topic, key, until, job_id)
        VALUES (new.topic, new.key, clock_timestamp() + new.period, new.id)
        ON CONFLICT (topic, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
            WHERE known.until <= clock_timestamp();
        IF NOT FOUND THEN
            refused := refused || new.id;
        END IF;
    END LOOP;
    DELETE FROM pulse.jobs AS job WHERE job.id = ANY(refused);
    RETURN refused;
END $$;

-- overlap: what an occurrence does while a job of the schedule is unfinished: allow, skip, queue. queued_for: the
-- occurrence that waits for that job to finish. Servers of the release before do not know the columns, and fire.
ALTER TABLE pulse.schedules
    ADD COLUMN overlap text NOT NULL DEFAULT 'allow',
    ADD COLUMN queued_for timestamptz;
-- queued_schedules.
CREATE INDEX schedules_queued ON pulse.schedules (queued_for) WHERE queued_for IS NOT NULL;

-- Whether a job of the schedule is unfinished, as of now and not of the snapshot of the statement that asks: that one has
-- locked the schedule, and a fire that it waited for may have committed since.
CREATE FUNCTION pulse.schedule_is_busy(of_schedule uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pulse.jobs AS job WHERE job.schedule_id = of_schedule AND job.finished_at IS NULL
    );
END $$;

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text
FROM pulse.completed_jobs AS done;
