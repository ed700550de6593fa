-- Brings back the jobs of a workflow that was canceled as a whole. Called with the workflow locked,
-- canceled no longer, and its other jobs retried. The jobs that it canceled wait again, all at once: if
-- they came back one by one, a job might start because its parent has not come back yet. ADR-0077
CREATE OR REPLACE FUNCTION pulse.reopen_workflow_v1(of_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    back uuid[];  -- the jobs that the workflow canceled
BEGIN
    WITH dropped AS MATERIALIZED (
        SELECT job.id
        FROM pulse.workflow_jobs AS node
        JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
        WHERE node.workflow_id = of_id AND node.dropped IS NOT NULL AND job.held AND job.status = 'CANCELED'
        ORDER BY node.job_id
        FOR NO KEY UPDATE OF job SKIP LOCKED
    )
    SELECT array_agg(dropped.id) INTO back FROM dropped;
    {leave_jobs_without_their_keys};
    WITH dropped AS MATERIALIZED (
        SELECT node.job_id AS id FROM pulse.workflow_jobs AS node WHERE node.job_id = ANY(back) AND node.dropped IS NOT NULL
    ),
    returned AS (
        UPDATE pulse.jobs AS job
        SET status = 'PENDING', ended_as = NULL, finished_at = NULL, last_error = NULL, unique_scope = {key_of_job_that_is_back}
        FROM dropped
        WHERE job.id = ANY(ARRAY[dropped.id])
    )
    UPDATE pulse.workflow_jobs AS node SET dropped = NULL FROM dropped WHERE node.job_id = ANY(ARRAY[dropped.id]);
    PERFORM pulse.recount_workflow_v1(of_id);
END $$;
