-- From now on no job of the workflow becomes ready. Returns whether a job of it has not ended. If all
-- have ended, nothing is changed. The jobs decide, not finished_at: an end or a return may not be
-- settled yet. They are read after the lock, as settlers read them. ADR-0077
CREATE OR REPLACE FUNCTION pulse.cancel_workflow_v1(of_id uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pulse.workflows AS workflow WHERE workflow.id = of_id FOR NO KEY UPDATE;
    UPDATE pulse.workflows AS workflow
    SET canceled_at = COALESCE(workflow.canceled_at, clock_timestamp())
    WHERE workflow.id = of_id
      AND EXISTS (
          SELECT
          FROM pulse.workflow_jobs AS node
          JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
          WHERE node.workflow_id = of_id AND job.status IN ('PENDING', 'RETRYING', 'RUNNING'));
    RETURN FOUND;
END $$;
