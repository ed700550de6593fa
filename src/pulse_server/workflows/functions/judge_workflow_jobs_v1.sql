-- Lets jobs of workflows start whose conditions hold, cancels jobs whose conditions cannot hold any
-- more, and brings back jobs that were canceled for a cause that is gone. Called with their
-- workflows locked. Jobs that do not wait are left alone: a job that became ready stays ready. A
-- job that an operator canceled stays canceled, and so does one whose unique key another job holds
-- now. A job whose row another session has locked gets a
-- notice, and is judged by a later settle. Returns rows of settle_workflows_v1. ADR-0077
CREATE OR REPLACE FUNCTION pulse.judge_workflow_jobs_v1(asked uuid[])
RETURNS TABLE (kind text, topic text, priority integer, jobs bigint, age_seconds float8, ids uuid[])
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    locked uuid[];
    ready  uuid[];
    others uuid[];
    back   uuid[];  -- of the others, those that the workflow canceled and brings back
BEGIN
    WITH held AS MATERIALIZED (
        SELECT job.id FROM pulse.jobs AS job WHERE job.id = ANY(asked) AND job.held FOR NO KEY UPDATE SKIP LOCKED
    )
    SELECT array_agg(held.id) INTO locked FROM held;
    IF COALESCE(cardinality(locked), 0) < cardinality(asked) THEN
        INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
        SELECT job.workflow_id, array_agg(job.id), 'LOCKED'
        FROM pulse.jobs AS job
        WHERE job.id = ANY(asked) AND job.held AND job.id <> ALL(COALESCE(locked, '{}'))
        GROUP BY job.workflow_id;
    END IF;
    -- The verdict of each: ready and waiting as usual, or something to change by the second update.
    SELECT
        array_agg(judged.job_id) FILTER (WHERE judged.verdict = 'ready' AND judged.dropped IS NULL),
        array_agg(judged.job_id) FILTER (WHERE judged.verdict <> 'ready' OR judged.dropped IS NOT NULL),
        array_agg(judged.job_id) FILTER (WHERE judged.verdict IN ('ready', 'waiting') AND judged.dropped IS NOT NULL)
    INTO ready, others, back
    FROM (
        SELECT node.job_id, node.dropped, {verdict_of_node} AS verdict
        FROM pulse.workflow_jobs AS node
        JOIN pulse.workflows AS workflow ON workflow.id = ANY(ARRAY[node.workflow_id])
        WHERE node.job_id = ANY(locked)
    ) AS judged;
    IF ready IS NOT NULL THEN
        RETURN QUERY
        WITH opened AS (
            UPDATE pulse.jobs AS job
            SET held = NULL,
                queued = {ready_node_is_due},
                next_run_at = {ready_node_is_due_at},
                start_by = {ready_node_is_due_at} + node.start_within,
                -- Its next claim puts it into its lane.
                tier = NULL,
                rank_at = NULL
            FROM unnest(ready) AS one (id)
            JOIN pulse.workflow_jobs AS node ON node.job_id = ANY(ARRAY[one.id])
            WHERE job.id = ANY(ARRAY[one.id]) AND COALESCE(job.finished_at, 'infinity') = 'infinity'
            RETURNING job.topic, job.priority, job.submitted_at, job.queued
        )
        SELECT 'ready', opened.topic, opened.priority, count(*), date_part('epoch', clock_timestamp() - min(opened.submitted_at)),
            NULL::uuid[]
        FROM opened
        WHERE opened.queued
        GROUP BY opened.topic, opened.priority;
    END IF;
    IF others IS NULL THEN
        RETURN;
    END IF;
    IF back IS NOT NULL THEN
        {leave_jobs_without_their_keys};
    END IF;
    RETURN QUERY
    WITH judged AS MATERIALIZED (
        SELECT node.job_id, node.run_at, node.delay, node.start_within, node.dropped, {verdict_of_node} AS verdict,
            workflow.canceled_at IS NOT NULL AS is_canceled
        FROM pulse.workflow_jobs AS node
        JOIN pulse.workflows AS workflow ON workflow.id = ANY(ARRAY[node.workflow_id])
        WHERE node.job_id = ANY(others)
    ),
    changed AS (
        UPDATE pulse.jobs AS job
        SET status = CASE WHEN node.verdict IN ('ready', 'waiting') THEN 'PENDING' ELSE 'CANCELED' END,
            ended_as = CASE WHEN node.verdict IN ('dropped', 'skipped') THEN 'CANCELED' END,
            finished_at = CASE WHEN node.verdict IN ('dropped', 'skipped') THEN clock_timestamp() END,
            held = CASE WHEN node.verdict <> 'ready' THEN true END,
            queued = node.verdict = 'ready' AND {ready_node_is_due},
            next_run_at = CASE WHEN node.verdict = 'ready' THEN {ready_node_is_due_at} ELSE {without_end} END,
            start_by = CASE WHEN node.verdict = 'ready' THEN {ready_node_is_due_at} + node.start_within END,
            last_error = CASE
                WHEN node.verdict IN ('ready', 'waiting') THEN NULL
                WHEN node.is_canceled THEN 'Its workflow was canceled.'
                WHEN node.verdict = 'skipped' THEN 'Not needed: no job that it waited for failed.'
                ELSE 'A job that it waited for did not succeed.'
            END,
            unique_scope = CASE WHEN job.finished_at IS NULL THEN job.unique_scope ELSE {key_of_job_that_is_back} END,
            tier = NULL,
            rank_at = NULL
        FROM judged AS node
        WHERE job.id = ANY(ARRAY[node.job_id])
          AND CASE WHEN COALESCE(job.finished_at, 'infinity') = 'infinity'
              THEN node.verdict IN ('dropped', 'skipped') OR (node.verdict = 'ready' AND node.dropped IS NOT NULL)
              -- An operator's cancel stays, and that of a job whose key another one holds.
              ELSE node.dropped IS NOT NULL AND node.verdict IN ('ready', 'waiting')
          END
        RETURNING job.id, job.topic, job.priority, job.submitted_at, job.queued, node.verdict
    ),
    -- A job that was dropped and is back, by this statement or by an operator, is dropped no longer.
    -- A job that was dropped may turn out not to be needed, and the other way round.
    stated AS (
        UPDATE pulse.workflow_jobs AS node
        SET dropped = CASE WHEN judged.verdict IN ('dropped', 'skipped') THEN judged.verdict END
        FROM judged
        WHERE node.job_id = ANY(ARRAY[judged.job_id])
          AND (node.job_id IN (SELECT changed.id FROM changed)
               OR (judged.dropped IS NOT NULL AND judged.verdict <> judged.dropped))
        RETURNING node.workflow_id, node.job_id, judged.dropped AS was_dropped, node.dropped
    ),
    noticed AS (
        INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
        SELECT stated.workflow_id, array_agg(stated.job_id), 'CANCELED'
        FROM stated
        WHERE stated.was_dropped <> stated.dropped
        GROUP BY stated.workflow_id
    )
    SELECT 'ready', changed.topic, changed.priority, count(*),
        date_part('epoch', clock_timestamp() - min(changed.submitted_at)), NULL::uuid[]
    FROM changed
    WHERE changed.queued
    GROUP BY changed.topic, changed.priority
    UNION ALL
    SELECT 'dropped', changed.topic, NULL, count(*), NULL, array_agg(changed.id)
    FROM changed
    WHERE changed.verdict IN ('dropped', 'skipped')
    GROUP BY changed.topic;
END $$;
