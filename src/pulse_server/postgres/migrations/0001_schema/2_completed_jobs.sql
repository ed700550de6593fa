-- The statement that completes a job moves it from pulse.jobs to the partition of the current day.
-- Retention drops whole partitions. Canceled and dead-lettered jobs stay in pulse.jobs: an operator
-- may retry them. A completion deletes its row: a foreign key on pulse.jobs would refuse this, or
-- delete other rows. ADR-0057
CREATE TABLE pulse.completed_jobs (
    -- The columns of pulse.jobs that a completed job keeps. The status is not stored: it is
    -- COMPLETED.
    id              uuid        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    next_run_at     timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz NOT NULL,
    priority        integer     NOT NULL,
    attempts        integer     NOT NULL,
    run             integer     NOT NULL DEFAULT 0,
    max_attempts    integer     NOT NULL,
    delivered       boolean     NOT NULL,
    kept            boolean     NOT NULL DEFAULT false,  -- for longer than its day, by the policy of its topic. ADR-0058
    topic           text        NOT NULL,
    payload         bytea       NOT NULL,
    finished_by     text,
    idempotency_key text,
    schedule_id     uuid,
    last_error      text,
    metadata        jsonb,
    history         jsonb,
    snoozes         integer,
    crashes         integer,
    unique_key      text,
    lane            text,
    result          bytea,
    suspensions     integer,
    timeline        jsonb,                    -- the steps without their values
    workflow_id     uuid
) PARTITION BY LIST (kept);
-- A day is dropped as a whole. Jobs whose topic is kept for longer move to completed_jobs_kept
-- before. ADR-0058
CREATE TABLE pulse.completed_jobs_by_day PARTITION OF pulse.completed_jobs FOR VALUES IN (false)
    PARTITION BY RANGE (finished_at);
CREATE TABLE pulse.completed_jobs_kept PARTITION OF pulse.completed_jobs FOR VALUES IN (true);
-- Jobs that finish on a day without a partition.
CREATE TABLE pulse.completed_jobs_default PARTITION OF pulse.completed_jobs_by_day DEFAULT;

-- get_job, completed_among. An index over partitions by another column cannot be unique;
-- completed_among prevents duplicates.
CREATE INDEX completed_jobs_id ON pulse.completed_jobs (id);
-- find_existing, completed_among.
CREATE INDEX completed_jobs_key ON pulse.completed_jobs (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- list_jobs, delete_expired. Counting the jobs of a topic reads the index alone. The condition
-- holds for every row, and only a statement that has it too can use the index: a partition looks
-- empty to the planner when its day begins, so it would use this index for a look-up by id too, and
-- walk it all day.
CREATE INDEX completed_jobs_newest ON pulse.completed_jobs (submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE topic >= '';
CREATE INDEX completed_jobs_schedule ON pulse.completed_jobs (schedule_id, submitted_at DESC, id DESC)
    WHERE schedule_id IS NOT NULL;

-- Today and the next two days, in UTC. Servers make later days. A publication for all tables
-- refuses to delete rows of a table without a replica identity, and a partition does not inherit
-- it. FULL: a key would add an index to each completion.
DO $$
DECLARE
    today constant timestamptz := date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    part  regclass;
BEGIN
    FOR ahead IN 0..2 LOOP
        EXECUTE format(
            'CREATE TABLE pulse.%I PARTITION OF pulse.completed_jobs_by_day FOR VALUES FROM (%L) TO (%L)',
            'completed_jobs_' || to_char((today + ahead * interval '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD'),
            today + ahead * interval '24 hours', today + (ahead + 1) * interval '24 hours');
    END LOOP;
    FOR part IN SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', part);
    END LOOP;
END $$;

-- Every job, from both tables.
CREATE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.run, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane, job.result,
       job.progress, job.steps, job.suspensions, job.waits_for, job.workflow_id, job.held
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.run, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result,
       NULL::jsonb, jsonb_array_length(done.timeline), done.suspensions, NULL::text, done.workflow_id, NULL::boolean
FROM pulse.completed_jobs AS done;
