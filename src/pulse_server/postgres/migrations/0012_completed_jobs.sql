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
CREATE FUNCTION pulse.completed_among(new_ids uuid[], keyed_ids uuid[], since timestamptz)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_again uuid[];
BEGIN
    PERFORM
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(new_ids)
      AND done.kept <= (COALESCE(since, '-infinity') < date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
      AND done.finished_at >= COALESCE(since, '-infinity')
      AND done.finished_at < CASE WHEN since IS NULL THEN 'infinity' ELSE now() + interval '1 day' END;
    IF NOT FOUND THEN
        IF keyed_ids IS NULL THEN
            RETURN NULL;
        END IF;
        PERFORM
        FROM pulse.jobs AS job
        JOIN pulse.completed_jobs AS done
            ON done.topic = job.topic AND done.idempotency_key = job.idempotency_key
        WHERE job.id = ANY(keyed_ids);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    WITH removed AS (
        DELETE FROM pulse.jobs AS job
        WHERE job.id = ANY(new_ids)
          AND (
              EXISTS (SELECT FROM pulse.completed_jobs AS done WHERE done.id = job.id)
              OR EXISTS (
                  SELECT
                  FROM pulse.completed_jobs AS done
                  WHERE done.topic = job.topic AND done.idempotency_key = job.idempotency_key
              )
          )
        RETURNING job.id
    )
    SELECT array_agg(removed.id) INTO found_again FROM removed;
    RETURN found_again;
END $$;
