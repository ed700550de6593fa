-- Deletes the steps and signals of jobs that have left pulse.jobs. Statements that still read them
-- have their own snapshot.
CREATE OR REPLACE FUNCTION pulse.forget_steps_v1(of_jobs uuid[])
RETURNS boolean LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pulse.job_steps AS step WHERE step.job_id = ANY(of_jobs);
    DELETE FROM pulse.job_signals AS signal WHERE signal.job_id = ANY(of_jobs);
    RETURN true;
END $$;
