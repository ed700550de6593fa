-- Notifies the settlers of completed jobs, given with the workflow of each. ADR-0077
CREATE OR REPLACE FUNCTION pulse.notice_workflows_v1(ids uuid[], workflows uuid[]) RETURNS boolean LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
    SELECT ended.workflow_id, array_agg(ended.id), 'COMPLETED'
    FROM unnest(ids, workflows) AS ended (id, workflow_id)
    GROUP BY ended.workflow_id;
    RETURN true;
END $$;
