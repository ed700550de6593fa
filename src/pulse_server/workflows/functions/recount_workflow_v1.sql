-- Brings every count of a workflow in step with its jobs and edges, and has settlers judge the jobs
-- that wait. Called with the workflow locked. ADR-0077
CREATE OR REPLACE FUNCTION pulse.recount_workflow_v1(of_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The jobs are read after this: a change that they do not show leaves a notice that stays.
    DELETE FROM pulse.workflow_notices AS notice WHERE notice.workflow_id = of_id;
    UPDATE pulse.workflow_jobs AS node
    SET outcome = stands.outcome
    FROM (
        SELECT known.job_id, CASE
            WHEN job.status = 'COMPLETED' THEN 'succeeded'
            WHEN job.status = 'DEAD_LETTERED' THEN 'failed'
            WHEN job.status = 'CANCELED' THEN CASE WHEN known.dropped = 'skipped' THEN 'skipped' ELSE 'canceled' END
        END AS outcome
        FROM pulse.workflow_jobs AS known
        JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[known.job_id])
        WHERE known.workflow_id = of_id
    ) AS stands
    WHERE node.job_id = ANY(ARRAY[stands.job_id]) AND node.outcome IS DISTINCT FROM stands.outcome;
    UPDATE pulse.workflow_jobs AS node
    SET outcome = 'succeeded'
    WHERE node.workflow_id = of_id AND node.outcome IS DISTINCT FROM 'succeeded'
      AND EXISTS (SELECT FROM pulse.completed_jobs AS done WHERE done.id = ANY(ARRAY[node.job_id]));
    UPDATE pulse.workflow_jobs AS child
    SET unended = counted.unended, failed = counted.failed, skipped = counted.skipped
    FROM (
        SELECT edge.child, count(*) FILTER (WHERE parent.outcome IS NULL) AS unended,
            count(*) FILTER (WHERE parent.outcome IN ('failed', 'canceled')) AS failed,
            count(*) FILTER (WHERE parent.outcome = 'skipped') AS skipped
        FROM pulse.workflow_jobs AS parent
        CROSS JOIN LATERAL (
            SELECT known.child FROM pulse.workflow_edges AS known WHERE known.parent = parent.job_id OFFSET 0
        ) AS edge
        WHERE parent.workflow_id = of_id
        GROUP BY edge.child
    ) AS counted
    WHERE child.job_id = ANY(ARRAY[counted.child])
      AND (child.unended, child.failed, child.skipped) IS DISTINCT FROM (counted.unended, counted.failed, counted.skipped);
    UPDATE pulse.workflows AS workflow
    SET unfinished = counted.unfinished, succeeded = counted.succeeded, failed = counted.failed,
        canceled = counted.canceled, skipped = counted.skipped,
        finished_at = CASE WHEN counted.unfinished = 0 THEN COALESCE(workflow.finished_at, clock_timestamp()) END
    FROM (
        SELECT count(*) FILTER (WHERE node.outcome IS NULL) AS unfinished,
            count(*) FILTER (WHERE node.outcome = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE node.outcome = 'failed') AS failed,
            count(*) FILTER (WHERE node.outcome = 'canceled') AS canceled,
            count(*) FILTER (WHERE node.outcome = 'skipped') AS skipped
        FROM pulse.workflow_jobs AS node
        WHERE node.workflow_id = of_id
    ) AS counted
    WHERE workflow.id = of_id;
    INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
    SELECT of_id, array_agg(waiting.job_id), 'PENDING'
    FROM (
        SELECT node.job_id, row_number() OVER () AS place
        FROM pulse.workflow_jobs AS node
        JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
        WHERE node.workflow_id = of_id AND job.held
    ) AS waiting
    GROUP BY waiting.place / 1000;
END $$;
