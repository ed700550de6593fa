-- Why these jobs cannot be added to the workflow, which the caller has locked; NULL: they can.
-- `names` has the jobs that are the reason. ADR-0077
CREATE OR REPLACE FUNCTION pulse.check_addition_v1(of_id uuid, definition jsonb, OUT problem text, OUT names text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parents  text[];
    children text[];
    waiting  uuid[];  -- of the parents, those that have parents
BEGIN
    SELECT array_agg(outside.name ORDER BY outside.name COLLATE "C") INTO parents
    FROM (
        SELECT after.name
        FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'after') AS after (name)
        EXCEPT
        SELECT own.job ->> 'name' FROM jsonb_array_elements(definition) AS own (job)
    ) AS outside;
    SELECT array_agg(DISTINCT before.name) INTO children
    FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'before') AS before (name);
    problem := 'unknown';
    SELECT array_agg(named.name) INTO names
    FROM unnest(parents || children) AS named (name)
    WHERE NOT EXISTS (SELECT FROM pulse.workflow_jobs AS known WHERE {named_node} named.name OFFSET 0);
    IF names IS NOT NULL THEN
        RETURN;
    END IF;
    problem := 'late';
    SELECT array_agg(node.name) INTO names
    FROM unnest(children) AS named (name)
    CROSS JOIN LATERAL (SELECT known.* FROM pulse.workflow_jobs AS known WHERE {named_node} named.name OFFSET 0) AS node
    LEFT JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
    WHERE job.held IS NOT TRUE OR job.status <> 'PENDING';
    IF names IS NOT NULL THEN
        RETURN;
    END IF;
    problem := 'cycle';
    -- A parent that waits for no job is no descendant. Most additions name such parents alone, or none.
    SELECT array_agg(node.job_id ORDER BY named.place) INTO waiting
    FROM unnest(parents) WITH ORDINALITY AS named (name, place)
    CROSS JOIN LATERAL (SELECT known.job_id FROM pulse.workflow_jobs AS known WHERE {named_node} named.name OFFSET 0) AS node
    WHERE EXISTS (SELECT FROM pulse.workflow_edges AS known WHERE known.child = node.job_id OFFSET 0);
    IF waiting IS NOT NULL AND children IS NOT NULL THEN
        WITH RECURSIVE below AS (
            SELECT node.job_id
            FROM unnest(children) AS named (name)
            CROSS JOIN LATERAL (SELECT known.* FROM pulse.workflow_jobs AS known WHERE {named_node} named.name OFFSET 0) AS node
            UNION
            SELECT edge.child
            FROM below
            CROSS JOIN LATERAL (
                SELECT known.child FROM pulse.workflow_edges AS known WHERE known.parent = below.job_id OFFSET 0
            ) AS edge
        )
        SELECT array_agg(node.name ORDER BY one.place) INTO names
        FROM unnest(waiting) WITH ORDINALITY AS one (id, place)
        JOIN pulse.workflow_jobs AS node ON node.job_id = ANY(ARRAY[one.id])
        WHERE one.id IN (SELECT below.job_id FROM below);
        IF names IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    problem := 'taken';
    IF definition @? '$[*].unique_key' THEN
        SELECT array_agg(new.name) INTO names
        FROM jsonb_to_recordset(definition) AS new (name text, topic text, unique_key text, unique_scope text)
        CROSS JOIN LATERAL (SELECT FROM pulse.jobs AS job WHERE {holds_unique_key} OFFSET 0) AS holder;
    END IF;
    IF names IS NULL THEN
        problem := NULL;
    END IF;
END $$;
