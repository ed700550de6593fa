-- The steps of a job in the form that a completed job keeps: without values. ADR-0069
CREATE OR REPLACE FUNCTION pulse.timeline_of_v1(of_job uuid)
RETURNS jsonb LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg({step_in_timeline} ORDER BY step.position, step.name)
        FROM pulse.job_steps AS step
        WHERE step.job_id = of_job
    );
END $$;
