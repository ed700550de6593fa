-- Brings workflows that have notices in step with their jobs, in one transaction: counts ends for
-- the children, and lets children start, cancels them, or brings them back. Its own cancels leave
-- notices for the next round. Workflows that another settler has locked are left to that one.
-- With `wanted`, only these workflows.
-- Returns rows of four kinds: `ready` (a topic, a priority, the number of jobs, and the age of the
-- oldest), `dropped` (a topic, and the ids of jobs that were canceled), `finished` (ids of
-- workflows), and `more` if notices are left. ADR-0077
CREATE OR REPLACE FUNCTION pulse.settle_workflows_v1(
    most_workflows integer, most_notices integer, most_rounds integer, most_jobs integer, wanted uuid[] DEFAULT NULL
) RETURNS TABLE (kind text, topic text, priority integer, jobs bigint, age_seconds float8, ids uuid[])
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    mine      uuid[];     -- the locked workflows
    noticed   uuid[];     -- jobs whose notices were taken, and in the same order:
    workflows uuid[];
    befores   text[];     --   their outcomes as their children have counted them
    afters    text[];     --   their outcomes now
    waiting   uuid[];     -- noticed jobs that wait, or waited when they were canceled
    waiting_in uuid[];    --   their workflows
    due       uuid[];     -- jobs that may be let go, canceled or brought back
    due_in    uuid[];     --   their workflows
    opened    bigint := 0;
    changed   bigint;
BEGIN
    -- In the order of ids: two settlers cannot wait for each other. Each query below has a snapshot
    -- of its own, which is younger than the lock.
    SELECT array_agg(found.id) INTO mine
    FROM (
        SELECT workflow.id
        FROM pulse.workflows AS workflow
        WHERE workflow.id = ANY(ARRAY(SELECT DISTINCT notice.workflow_id FROM pulse.workflow_notices AS notice))
          AND (wanted IS NULL OR workflow.id = ANY(wanted))
        ORDER BY workflow.id
        LIMIT most_workflows
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found;
    FOR round IN 1..most_rounds LOOP
        EXIT WHEN mine IS NULL OR opened >= most_jobs;  -- the first ones start while the others are let go
        -- Notices and jobs are read with one snapshot: a change that it misses has a notice that it
        -- misses. COMPLETED is final: an older notice may be taken later. A locked row is looked at
        -- once: in each round, it would keep a core busy for as long as it is locked.
        WITH taken AS (
            DELETE FROM pulse.workflow_notices AS notice
            WHERE notice.ctid = ANY(ARRAY(
                SELECT next.tid
                FROM (
                    SELECT near.ctid AS tid, sum(cardinality(near.job_ids)) OVER (ROWS UNBOUNDED PRECEDING)
                        - cardinality(near.job_ids) AS jobs_before
                    FROM pulse.workflow_notices AS near
                    WHERE near.workflow_id = ANY(mine) AND (round = 1 OR near.status <> 'LOCKED')
                    LIMIT most_notices
                ) AS next
                WHERE next.jobs_before < most_jobs
            ))
            RETURNING notice.job_ids, notice.status
        ),
        seen AS MATERIALIZED (
            SELECT one.job_id, bool_or(taken.status = 'COMPLETED') AS is_completed,
                bool_or(taken.status = 'DEAD_LETTERED') AS was_dead, bool_or(taken.status = 'CANCELED') AS was_canceled
            FROM taken
            CROSS JOIN LATERAL unnest(taken.job_ids) AS one (job_id)
            GROUP BY one.job_id
        ),
        stands AS MATERIALIZED (
            SELECT node.workflow_id, node.job_id, COALESCE(job.held, false) AS held, node.outcome AS before, CASE
                WHEN seen.is_completed OR node.outcome = 'succeeded' OR job.status = 'COMPLETED' THEN 'succeeded'
                WHEN job.id IS NULL AND EXISTS (SELECT FROM pulse.completed_jobs AS done WHERE done.id = ANY(ARRAY[seen.job_id]))
                THEN 'succeeded'
                WHEN job.status = 'DEAD_LETTERED' OR (job.id IS NULL AND seen.was_dead) THEN 'failed'
                WHEN job.status = 'CANCELED' OR (job.id IS NULL AND seen.was_canceled)
                THEN CASE WHEN node.dropped = 'skipped' THEN 'skipped' ELSE 'canceled' END
                WHEN job.id IS NULL THEN node.outcome
            END AS after
            FROM seen
            JOIN pulse.workflow_jobs AS node ON node.job_id = ANY(ARRAY[seen.job_id])
            -- A CASE: completed jobs are not looked up.
            LEFT JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[CASE WHEN NOT seen.is_completed THEN seen.job_id END])
        )
        SELECT array_agg(stands.job_id), array_agg(stands.workflow_id), array_agg(stands.before), array_agg(stands.after),
            COALESCE(array_agg(stands.job_id) FILTER (WHERE stands.held), '{}'),
            COALESCE(array_agg(stands.workflow_id) FILTER (WHERE stands.held), '{}')
        INTO noticed, workflows, befores, afters, waiting, waiting_in
        FROM stands;
        EXIT WHEN noticed IS NULL;
        -- Three statements: a job may be a parent and a child, and a statement changes a row once.
        UPDATE pulse.workflow_jobs AS node
        SET outcome = change.after
        FROM unnest(noticed, befores, afters) AS change (job_id, before, after)
        WHERE node.job_id = ANY(ARRAY[change.job_id]) AND change.before IS DISTINCT FROM change.after;
        UPDATE pulse.workflows AS workflow
        SET unfinished = workflow.unfinished + sums.unfinished,
            succeeded = workflow.succeeded + sums.succeeded,
            failed = workflow.failed + sums.failed,
            canceled = workflow.canceled + sums.canceled,
            skipped = workflow.skipped + sums.skipped,
            finished_at = CASE WHEN workflow.unfinished + sums.unfinished = 0 THEN clock_timestamp() END
        FROM (
            SELECT change.workflow_id,
                {change_of_unended} AS unfinished,
                {change_of_succeeded} AS succeeded,
                {change_of_failed} AS failed,
                {change_of_canceled} AS canceled,
                {change_of_skipped} AS skipped
            FROM unnest(workflows, befores, afters) AS change (workflow_id, before, after)
            WHERE change.before IS DISTINCT FROM change.after
            GROUP BY change.workflow_id
        ) AS sums
        WHERE workflow.id = ANY(ARRAY[sums.workflow_id]);
        WITH counted AS (
            UPDATE pulse.workflow_jobs AS child
            SET unended = child.unended + sums.unended,
                failed = child.failed + sums.failed,
                skipped = child.skipped + sums.skipped
            FROM (
                SELECT edge.child,
                    {change_of_unended} AS unended,
                    {change_of_failed} + {change_of_canceled} AS failed,
                    {change_of_skipped} AS skipped
                FROM unnest(noticed, befores, afters) AS change (job_id, before, after)
                CROSS JOIN LATERAL (
                    SELECT known.child FROM pulse.workflow_edges AS known WHERE known.parent = change.job_id OFFSET 0
                ) AS edge
                WHERE change.before IS DISTINCT FROM change.after
                GROUP BY edge.child
            ) AS sums
            WHERE child.job_id = ANY(ARRAY[sums.child])
            -- Without the children that go on waiting, as a child of 10,000 parents nearly always
            -- does. A child that the workflow canceled is looked at: it may have been brought back.
            RETURNING child.job_id, child.workflow_id, child.dropped IS NOT NULL OR 'waiting'
                <> pulse.workflow_verdict_v1(child.condition, child.unended, child.failed, child.skipped) AS is_due
        )
        SELECT waiting || COALESCE(array_agg(counted.job_id) FILTER (WHERE counted.is_due), '{}'),
            waiting_in || COALESCE(array_agg(counted.workflow_id) FILTER (WHERE counted.is_due), '{}')
        INTO due, due_in
        FROM counted;
        IF cardinality(due) > most_jobs THEN
            INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
            SELECT later.workflow_id, array_agg(later.job_id), 'PENDING'
            FROM unnest(due[most_jobs + 1:], due_in[most_jobs + 1:]) WITH ORDINALITY AS later (job_id, workflow_id, place)
            GROUP BY later.workflow_id, (later.place - 1) / most_jobs;
            due := due[:most_jobs];
        END IF;
        CONTINUE WHEN cardinality(due) = 0;
        RETURN QUERY SELECT * FROM pulse.judge_workflow_jobs_v1(due);
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed > 0 THEN
            opened := opened + cardinality(due);
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT 'finished', NULL, NULL::integer, count(*), NULL::float8, array_agg(workflow.id)
    FROM pulse.workflows AS workflow
    -- In a form that the index workflows_finished cannot serve: with statistics of an empty table it is walked.
    WHERE workflow.id = ANY(mine) AND COALESCE(workflow.finished_at, 'infinity') <> 'infinity'
    HAVING count(*) > 0
    UNION ALL
    -- Without late notices of deleted workflows: delete_workflows deletes them.
    SELECT 'more', NULL, NULL, NULL, NULL, NULL
    WHERE EXISTS (
        SELECT
        FROM pulse.workflow_notices AS notice
        CROSS JOIN LATERAL (SELECT FROM pulse.workflows AS workflow WHERE workflow.id = notice.workflow_id OFFSET 0) AS known
    );
END $$;
