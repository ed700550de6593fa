-- Why these jobs cannot be added to the workflow, which the caller has locked; NULL: they can.
-- `names` has the jobs that are the reason. ADR-0077
CREATE OR REPLACE FUNCTION pulse.check_addition_v1(of_id uuid, definition jsonb, OUT problem text, OUT names text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parents  text[];
    children text[];
BEGIN
    SELECT array_agg(DISTINCT after.name) INTO parents
    FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'after') AS after (name)
    WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(definition) AS own (job) WHERE own.job ->> 'name' = after.name);
    SELECT array_agg(DISTINCT before.name) INTO children
    FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'before') AS before (name);
    problem := 'unknown';
    SELECT array_agg(named.name) INTO names
    FROM unnest(parents || children) AS named (name)
    WHERE NOT EXISTS (
        SELECT FROM pulse.workflow_jobs AS known WHERE known.workflow_id = of_id AND known.name = named.name OFFSET 0
    );
    IF names IS NOT NULL THEN
        RETURN;
    END IF;
    problem := 'late';
    SELECT array_agg(node.name) INTO names
    FROM unnest(children) AS named (name)
    CROSS JOIN LATERAL (
        SELECT known.* FROM pulse.workflow_jobs AS known WHERE known.workflow_id = of_id AND known.name = named.name OFFSET 0
    ) AS node
    LEFT JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
    WHERE job.held IS NOT TRUE OR job.status <> 'PENDING';
    IF names IS NOT NULL THEN
        RETURN;
    END IF;
    problem := 'cycle';
    WITH RECURSIVE below AS (
        SELECT node.number
        FROM unnest(children) AS named (name)
        CROSS JOIN LATERAL (
        SELECT known.* FROM pulse.workflow_jobs AS known WHERE known.workflow_id = of_id AND known.name = named.name OFFSET 0
    ) AS node
        UNION
        SELECT edge.child
        FROM below
        CROSS JOIN LATERAL (
            SELECT known.child FROM pulse.workflow_edges AS known WHERE known.workflow_id = of_id AND known.parent = below.number OFFSET 0
        ) AS edge
    )
    SELECT array_agg(node.name) INTO names
    FROM unnest(parents) AS named (name)
    CROSS JOIN LATERAL (
        SELECT known.* FROM pulse.workflow_jobs AS known WHERE known.workflow_id = of_id AND known.name = named.name OFFSET 0
    ) AS node
    WHERE node.number IN (SELECT below.number FROM below);
    IF names IS NOT NULL THEN
        RETURN;
    END IF;
    problem := 'taken';
    SELECT array_agg(new.name) INTO names
    FROM jsonb_to_recordset(definition) AS new (name text, topic text, unique_key text, unique_scope text)
    JOIN pulse.jobs AS job ON {holds_unique_key};
    IF names IS NULL THEN
        problem := NULL;
    END IF;
END $$;
