-- Adds jobs to the workflow of a running job, if its claim holds. A job without a workflow becomes
-- the first job of a new one. Added jobs have the schedule of the running job, so that its overlap
-- counts them too. Jobs whose names exist are left out: the handler runs again. In `definition`, `after` and `before` have names; a job may follow
-- jobs of the workflow and jobs before it in the definition. `problem` says why nothing was added:
-- lost (the claim), canceled (the workflow), unknown (names), late
-- (jobs in `before` that no longer wait), cycle, taken (unique keys), many (`most_jobs`, `most_edges`). ADR-0077
CREATE OR REPLACE FUNCTION pulse.add_to_workflow_v1(
    by_job uuid, by_worker text, by_attempt integer, by_run integer, definition jsonb, most_jobs integer, most_edges integer,
    OUT problem text, OUT names text[], OUT of_id uuid, OUT ids uuid[], OUT added integer
) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    all_wait    constant boolean := true;
    of_schedule uuid;
    asked       constant jsonb := definition;
    first_number integer;
    edges       integer;
BEGIN
    added := 0;
    of_id := pulse.workflow_of_v1(by_job, by_worker, by_attempt, by_run);
    SELECT job.schedule_id INTO of_schedule FROM pulse.jobs AS job WHERE job.id = by_job;
    -- The workflow first, as settlers do. The lock on the job: it does not complete before this commits.
    SELECT workflow.jobs, workflow.edges, CASE WHEN workflow.canceled_at IS NOT NULL THEN 'canceled' END INTO first_number, edges, problem
    FROM pulse.workflows AS workflow
    WHERE workflow.id = of_id
    FOR NO KEY UPDATE;
    IF problem IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM
    FROM pulse.jobs AS job, (SELECT by_job AS id, by_worker AS worker_id, by_attempt AS attempt, by_run AS run) AS claim
    WHERE {claim_holds}
    FOR KEY SHARE OF job;
    IF NOT FOUND THEN
        problem := 'lost';
        RETURN;
    END IF;
    SELECT jsonb_agg(given.job ORDER BY given.place) INTO definition
    FROM jsonb_array_elements(definition) WITH ORDINALITY AS given (job, place)
    WHERE NOT EXISTS (SELECT FROM pulse.workflow_jobs AS known WHERE {named_node} (given.job ->> 'name') OFFSET 0);
    IF definition IS NOT NULL THEN
        IF definition @? '$[*].unique_key' THEN
            {free_keys_of_started};
        END IF;
        SELECT check_of.problem, check_of.names INTO problem, names
        FROM pulse.check_addition_v1(of_id, definition) AS check_of;
        added := jsonb_array_length(definition);
        edges := edges + (
            SELECT COALESCE(sum(COALESCE(jsonb_array_length(job -> 'after'), 0) + COALESCE(jsonb_array_length(job -> 'before'), 0)), 0)
            FROM jsonb_array_elements(definition) AS given (job));
        IF problem IS NULL AND (first_number + added > most_jobs OR edges > most_edges) THEN
            problem := 'many';
        END IF;
        IF problem IS NOT NULL THEN
            added := 0;
            -- A job that had no workflow has none again. Only a workflow that this call made has one job.
            DELETE FROM pulse.workflows AS workflow WHERE workflow.id = of_id AND workflow.jobs = 1 AND workflow.digest = '';
            IF FOUND THEN
                DELETE FROM pulse.workflow_jobs AS node WHERE node.job_id = by_job;
                UPDATE pulse.jobs AS job SET workflow_id = NULL WHERE job.id = by_job;
            END IF;
            RETURN;
        END IF;
        WITH {given_workflow_jobs},
        {insert_of_workflow_jobs}
        INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
        SELECT of_id, array_agg(new.id), 'PENDING' FROM new;
        WITH edge AS MATERIALIZED (
            SELECT DISTINCT parent.job_id AS parent, child.job_id AS child, parent.number, parent.outcome
            FROM (
                SELECT after.name AS parent, given.job ->> 'name' AS child
                FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'after') AS after (name)
                UNION ALL
                SELECT given.job ->> 'name', before.name
                FROM jsonb_array_elements(definition) AS given (job), jsonb_array_elements_text(given.job -> 'before') AS before (name)
            ) AS named
            CROSS JOIN LATERAL (
                SELECT known.job_id, known.number, known.outcome FROM pulse.workflow_jobs AS known WHERE {named_node} named.parent OFFSET 0
            ) AS parent
            CROSS JOIN LATERAL (
                SELECT known.job_id FROM pulse.workflow_jobs AS known WHERE {named_node} named.child OFFSET 0
            ) AS child
        ),
        stored AS (
            INSERT INTO pulse.workflow_edges (parent, child, number) SELECT edge.parent, edge.child, edge.number FROM edge
        ),
        counted AS (
            UPDATE pulse.workflow_jobs AS child
            SET unended = child.unended + sums.unended, failed = child.failed + sums.failed, skipped = child.skipped + sums.skipped
            FROM (
                SELECT edge.child, count(*) FILTER (WHERE edge.outcome IS NULL) AS unended,
                    count(*) FILTER (WHERE edge.outcome IN ('failed', 'canceled')) AS failed,
                    count(*) FILTER (WHERE edge.outcome = 'skipped') AS skipped
                FROM edge
                GROUP BY edge.child
            ) AS sums
            WHERE child.job_id = ANY(ARRAY[sums.child])
        )
        UPDATE pulse.workflows AS workflow
        SET jobs = workflow.jobs + added, unfinished = workflow.unfinished + added, edges = workflow.edges + (SELECT count(*) FROM edge)
        WHERE workflow.id = of_id;
    END IF;
    SELECT array_agg(node.job_id ORDER BY given.place) INTO ids
    FROM jsonb_array_elements(asked) WITH ORDINALITY AS given (job, place)
    CROSS JOIN LATERAL (
        SELECT known.job_id FROM pulse.workflow_jobs AS known WHERE {named_node} (given.job ->> 'name') OFFSET 0
    ) AS node;
END $$;
