-- Notifies the settlers of a job that ended, or was brought back. Completions that move their jobs
-- call notice_workflows_v1 instead. ADR-0077
CREATE OR REPLACE FUNCTION pulse.notice_workflow_v1() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status) VALUES (NEW.workflow_id, ARRAY[NEW.id], NEW.status);
    RETURN NULL;
END $$;
