-- Locks the running jobs of a topic whose starts are excluded, so that none of them ends before this
-- transaction does. What ends meanwhile was in the way of a lock, and is not locked.
CREATE OR REPLACE FUNCTION pulse.lock_runs_v1(of_topic text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND {is_checked_run}
    ORDER BY job.id
    FOR NO KEY UPDATE;
END
$$;
