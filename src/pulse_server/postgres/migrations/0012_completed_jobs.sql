-- Completed jobs leave pulse.jobs in the statement that completes them, for a partition of that day. Retention drops
-- whole partitions instead of deleting rows. Canceled and dead-lettered jobs stay in pulse.jobs: an operator may retry
-- them. What was completed before this migration stays there too and ages out row by row: nothing is rewritten. ADR-0057

-- A completion deletes its row: a foreign key on pulse.jobs would refuse it, or take other rows along.
DO $$
DECLARE
    reference text;
BEGIN
    SELECT format('%I of %s', foreign_key.conname, foreign_key.conrelid::regclass) INTO reference
    FROM pg_constraint AS foreign_key
    WHERE foreign_key.contype = 'f' AND foreign_key.confrelid = 'pulse.jobs'::regclass
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist', MESSAGE = format(
            'The foreign key %s references pulse.jobs, and completed jobs leave that table from now on. '
            'Drop the constraint, then migrate again.', reference);
    END IF;
END $$;

-- The columns of pulse.jobs that a completed job has. The status is not stored: it is COMPLETED.
CREATE TABLE pulse.completed_jobs (
    -- Fixed-width columns first: no padding between them.
    id              uuid        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    next_run_at     timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz NOT NULL,
    priority        integer     NOT NULL,
    attempts        integer     NOT NULL,
    max_attempts    integer     NOT NULL,
    delivered       boolean     NOT NULL,
    topic           text        NOT NULL,
    payload         bytea       NOT NULL,
    finished_by     text,
    idempotency_key text,
    schedule_id     uuid,
    last_error      text,
    metadata        jsonb,
    history         jsonb,
    kept            boolean     NOT NULL DEFAULT false  -- for longer than its day, by the policy of its topic
) PARTITION BY LIST (kept);

-- A day is dropped as a whole. Jobs whose topic is kept for longer move to the other table before. ADR-0058
CREATE TABLE pulse.completed_jobs_by_day PARTITION OF pulse.completed_jobs FOR VALUES IN (false)
    PARTITION BY RANGE (finished_at);
CREATE TABLE pulse.completed_jobs_kept PARTITION OF pulse.completed_jobs FOR VALUES IN (true);

-- get_job, completed_among. An index over partitions by another column cannot be unique; completed_among sees to it.
CREATE INDEX completed_jobs_id ON pulse.completed_jobs (id);
-- find_existing, completed_among.
CREATE INDEX completed_jobs_key ON pulse.completed_jobs (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- list_jobs, delete_expired. The topic rides along, so that counting the jobs of one reads the index alone. The condition
-- holds for every row, and only a statement that says it may use the index: a partition looks empty to the planner when
-- its day begins, and it would take this index for an id as well, and walk it all day.
CREATE INDEX completed_jobs_newest ON pulse.completed_jobs (submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE topic >= '';
-- The jobs of a schedule are its history.
CREATE INDEX completed_jobs_schedule ON pulse.completed_jobs (schedule_id, submitted_at DESC, id DESC)
    WHERE schedule_id IS NOT NULL;

-- Jobs that finish on a day without a partition.
CREATE TABLE pulse.completed_jobs_default PARTITION OF pulse.completed_jobs_by_day DEFAULT;

-- Today and the next two days, in UTC. From then on the servers make them.
DO $$
DECLARE
    today constant timestamptz := date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
BEGIN
    FOR ahead IN 0..2 LOOP
        EXECUTE format(
            'CREATE TABLE pulse.%I PARTITION OF pulse.completed_jobs_by_day FOR VALUES FROM (%L) TO (%L)',
            'completed_jobs_' || to_char((today + ahead * interval '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD'),
            today + ahead * interval '24 hours', today + (ahead + 1) * interval '24 hours');
    END LOOP;
END $$;

-- FULL, as lease_checks: a key would have to hold finished_at and kept too, and be one index more for each completion.
-- Days are dropped as a whole, so few rows are deleted one by one. A partition does not inherit it.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', part);
    END LOOP;
END $$;

-- Every job, whichever table has it.
CREATE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text
FROM pulse.completed_jobs AS done;

-- The second look of a statement that inserts jobs, called once after its last row: which of them are completed jobs,
-- submitted again? Returns their ids, and removes what the statement inserted for them.
--
-- An insert that meets a completion waits for it, and then finds pulse.jobs without the job. The snapshot of the insert
-- is older than that completion: in the same statement the job would be in neither table. Each query of a VOLATILE
-- function has a snapshot of its own, and sees every completion that the insert could have met.
--   keyed_ids: those with an idempotency key.
--   since: the completed jobs that have one of the ids finished at this moment or later; NULL: at any time. Only the
--   partitions from then on are read, to a day ahead, in case that the database's clock was set back. Jobs that are kept
--   for longer than their day finished before today.
-- The bounds are variables: a plan that is made for their values locks no other partition. One that is made for all values
-- locks each of them, which takes less time than to plan, and waits for a session that has locked one. ADR-0070
CREATE FUNCTION pulse.completed_among(new_ids uuid[], keyed_ids uuid[], since timestamptz)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first_at constant timestamptz := COALESCE(since, '-infinity');
    end_at   constant timestamptz := CASE WHEN since IS NULL THEN 'infinity' ELSE now() + interval '1 day' END;
    may_be_kept constant boolean := first_at < date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    found_again uuid[];
BEGIN
    SELECT array_agg(done.id) INTO found_again
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(new_ids)
      AND done.kept <= may_be_kept
      AND done.finished_at >= first_at
      AND done.finished_at < end_at;
    IF keyed_ids IS NOT NULL THEN
        SELECT found_again || array_agg(job.id) INTO found_again
        FROM pulse.jobs AS job
        JOIN pulse.completed_jobs AS done
            ON done.topic = job.topic AND done.idempotency_key = job.idempotency_key
        WHERE job.id = ANY(keyed_ids);
    END IF;
    IF found_again IS NOT NULL THEN
        WITH removed AS (
            DELETE FROM pulse.jobs AS job WHERE job.id = ANY(found_again) RETURNING job.id
        )
        SELECT array_agg(removed.id) INTO found_again FROM removed;
    END IF;
    RETURN found_again;
END $$;
