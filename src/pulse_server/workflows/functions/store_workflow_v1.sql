-- Stores a workflow with its jobs and edges, or finds it: `is_same` compares its digest with that of
-- the submit. `definition` is an array of jobs in JSON; `after` has the places of a job's parents
-- in it, from 1 on, each before the place of the job. Raises PU003 with the names of jobs whose
-- unique keys are taken. ADR-0077
CREATE OR REPLACE FUNCTION pulse.store_workflow_v1(
    of_id uuid, of_name text, of_digest bytea, of_schedule uuid, definition jsonb,
    OUT is_new boolean, OUT is_same boolean, OUT ids uuid[]
) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    all_wait     constant boolean := false;
    first_number constant integer := 0;
    taken        text;
BEGIN
    INSERT INTO pulse.workflows (id, name, digest, schedule_id, jobs, unfinished, edges)
    SELECT of_id, of_name, of_digest, of_schedule, count(*), count(*), COALESCE(sum(jsonb_array_length(job -> 'after')), 0)
    FROM jsonb_array_elements(definition) AS given (job)
    ON CONFLICT DO NOTHING;
    is_new := FOUND;
    is_same := true;
    IF NOT is_new THEN
        SELECT workflow.digest = of_digest INTO is_same FROM pulse.workflows AS workflow WHERE workflow.id = of_id;
        SELECT array_agg(node.job_id ORDER BY node.number) INTO ids
        FROM pulse.workflow_jobs AS node
        WHERE node.workflow_id = of_id AND node.number <= jsonb_array_length(definition);
        RETURN;
    END IF;
    IF definition @? '$[*].unique_key' THEN
        {free_keys_of_started};
        SELECT string_agg(new.name, ', ' ORDER BY new.name) INTO taken
        FROM jsonb_to_recordset(definition) AS new (name text, topic text, unique_key text, unique_scope text)
        CROSS JOIN LATERAL (SELECT FROM pulse.jobs AS job WHERE {holds_unique_key} OFFSET 0) AS holder;
        IF taken IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'PU003', MESSAGE = taken;
        END IF;
    END IF;
    WITH {given_workflow_jobs},
    {insert_of_workflow_jobs},
    in_order AS MATERIALIZED (
        SELECT array_agg(new.id ORDER BY new.number) AS ids FROM new
    ),
    edges AS (
        INSERT INTO pulse.workflow_edges (parent, child, number)
        SELECT in_order.ids[parent.number::int], new.id, parent.number::int
        FROM in_order
        CROSS JOIN new
        CROSS JOIN LATERAL jsonb_array_elements_text(new.after) AS parent (number)
    )
    SELECT in_order.ids INTO ids FROM in_order;
END $$;
