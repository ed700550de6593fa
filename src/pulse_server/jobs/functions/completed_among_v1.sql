-- Called once after the last row of a statement that inserts jobs: finds the jobs that repeat a
-- completed job. Returns their ids, and deletes their new rows.
--
-- An insert that meets a completion waits for it, and then finds pulse.jobs without the job. The
-- snapshot of the insert is older than that completion: in the same statement the job would be in
-- neither table. Each query of a VOLATILE function takes a new snapshot, and sees every completion
-- that the insert could have met.
--   keyed_ids: the new jobs that have an idempotency key.
--   since: completed jobs with the new ids finished at this moment or later; NULL: at any time.
--   Only the partitions from then to one day ahead are read: the database's clock may have been set
--   back. Jobs that are kept for longer than their day finished before today.
-- The bounds are variables: a plan for their values locks no other partition. A generic plan locks
-- every partition. This takes less time than planning, but waits for a session that has locked one.
-- docs/figures.md#submits-past-locks
CREATE OR REPLACE FUNCTION pulse.completed_among_v1(new_ids uuid[], keyed_ids uuid[], since timestamptz)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
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
        CROSS JOIN LATERAL (
            SELECT FROM pulse.completed_jobs AS done
            WHERE done.topic = job.topic AND done.idempotency_key = job.idempotency_key
            OFFSET 0
        ) AS done
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
