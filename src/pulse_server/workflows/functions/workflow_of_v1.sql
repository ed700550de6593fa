-- The workflow of a running job, if its claim holds. A job that has none becomes the first job of a
-- new workflow, which has the name of its schedule or topic. ADR-0077
CREATE OR REPLACE FUNCTION pulse.workflow_of_v1(by_job uuid, by_worker text, by_attempt integer, by_run integer)
RETURNS uuid LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_id  constant uuid := gen_random_uuid();
    started record;
BEGIN
    -- The first of two calls at once makes the workflow. The other one waits for this row, and finds it.
    UPDATE pulse.jobs AS job
    SET workflow_id = new_id
    FROM (SELECT by_job AS id, by_worker AS worker_id, by_attempt AS attempt, by_run AS run) AS claim
    WHERE {claim_holds} AND job.workflow_id IS NULL
    RETURNING job.topic, job.schedule_id INTO started;
    IF FOUND THEN
        INSERT INTO pulse.workflows (id, name, digest, schedule_id, jobs, edges, unfinished)
        SELECT new_id, COALESCE((SELECT known.name FROM pulse.schedules AS known WHERE known.id = started.schedule_id), started.topic),
            '', started.schedule_id, 1, 0, 1;
        INSERT INTO pulse.workflow_jobs (job_id, workflow_id, number, unended, condition, name, topic)
        VALUES (by_job, new_id, 1, 0, 'succeeded', started.topic, started.topic);
        RETURN new_id;
    END IF;
    RETURN (SELECT job.workflow_id FROM pulse.jobs AS job WHERE job.id = by_job);
END $$;
