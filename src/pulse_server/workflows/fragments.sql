-- Fragments of workflows. jobs.sql explains fragments.

-- name: named_node
-- That `known`, a row of workflow_jobs, has the name that follows in the workflow of_id. In the form of
-- the index workflow_jobs_name, which alone can serve it.
(known.workflow_id::text || known.name) COLLATE "C" = of_id::text ||

-- name: change_of_unended
-- By how much the number of unended jobs changes, from `change`: outcomes before and after.
sum((change.after IS NULL)::int - (change.before IS NULL)::int)

-- name: change_of_succeeded
sum((change.after IS NOT DISTINCT FROM 'succeeded')::int - (change.before IS NOT DISTINCT FROM 'succeeded')::int)

-- name: change_of_failed
sum((change.after IS NOT DISTINCT FROM 'failed')::int - (change.before IS NOT DISTINCT FROM 'failed')::int)

-- name: change_of_canceled
sum((change.after IS NOT DISTINCT FROM 'canceled')::int - (change.before IS NOT DISTINCT FROM 'canceled')::int)

-- name: change_of_skipped
sum((change.after IS NOT DISTINCT FROM 'skipped')::int - (change.before IS NOT DISTINCT FROM 'skipped')::int)

-- name: verdict_of_node
-- Of `node`, a row of workflow_jobs, and `workflow`, its workflow.
CASE WHEN workflow.canceled_at IS NOT NULL THEN 'dropped'
            ELSE pulse.workflow_verdict_v1(node.condition, node.unended, node.failed, node.skipped) END

-- name: ready_node_is_due
COALESCE(node.run_at <= clock_timestamp(), node.delay IS NULL)

-- name: ready_node_is_due_at
GREATEST(clock_timestamp(), COALESCE(node.run_at, clock_timestamp() + COALESCE(node.delay, interval '0')))

-- name: given_workflow_jobs
-- The jobs of a definition, in JSON: `new`, with the columns of a new job. A job with parents waits
-- without end; its own times are kept for later.
new AS MATERIALIZED (
    SELECT
        {defined_job},
        given.name, COALESCE(given."when", 'succeeded') AS condition, given.after,
        CASE WHEN {given_waits} THEN true END AS held,
        given.run_at AS own_run_at, given.delay * interval '1 second' AS own_delay,
        given.start_within * interval '1 second' AS own_start_within,
        first_number + given.number AS number
    FROM ROWS FROM (jsonb_to_recordset(definition) AS (
        {defined_types}, default_attempts integer, name text, "when" text, after jsonb
    )) WITH ORDINALITY AS given ({defined_columns}, default_attempts, name, "when", after, number)
)

-- name: given_waits
-- An added job always waits for its first look by a settler.
(all_wait OR COALESCE(jsonb_array_length(given.after), 0) > 0)

-- name: attempts_of_given
-- As {attempts_by_policy}, for a job that asks for none.
COALESCE(given.max_attempts, (
            SELECT COALESCE(
                CASE WHEN rules.attempts_by_operator THEN rules.max_attempts END, given.default_attempts, rules.max_attempts,
                control.max_attempts)
            FROM pulse.dispatch_control AS control
            LEFT JOIN pulse.topic_rules AS rules ON rules.topic = given.topic
            WHERE control.id = 1
        ))

-- name: free_keys_of_started
-- A key that is unique while its job waits is free once the job has started.
UPDATE pulse.jobs AS job
            SET unique_scope = NULL
            FROM (
                SELECT found.id
                FROM jsonb_to_recordset(definition) AS new (topic text, unique_key text, unique_scope text)
                CROSS JOIN LATERAL (SELECT job.id FROM pulse.jobs AS job WHERE {holds_unique_key} OFFSET 0) AS found
            ) AS holder
            WHERE job.id = ANY(ARRAY[holder.id]) AND job.unique_scope = 'waiting' AND job.status <> 'PENDING' AND job.finished_at IS NULL

-- name: insert_of_workflow_jobs
-- Stores the jobs in `new`, which enter their lanes if they are due.
inserted AS (
    INSERT INTO pulse.jobs ({new_job_columns}, status, tier, rank_at, workflow_id, held)
    SELECT {new_job}, 'PENDING', {place_in_lane}, of_id, new.held
    FROM new
    RETURNING topic, lane, tier
),
nodes AS (
    INSERT INTO pulse.workflow_jobs (
        job_id, workflow_id, number, unended, failed, skipped, condition, name, topic, run_at, delay, start_within)
    SELECT
        new.id, of_id, new.number, CASE WHEN all_wait THEN 0 ELSE COALESCE(jsonb_array_length(new.after), 0) END, 0, 0,
        new.condition, new.name, new.topic,
        new.own_run_at, new.own_delay, new.own_start_within
    FROM new
),
{notices_of_entered}

-- name: leave_jobs_without_their_keys
-- Jobs of `back`, which their workflow canceled and would bring back, stay canceled if they were
-- unique for their life and another job holds the key now. Like a job that an operator canceled,
-- such a job waits again when it is retried.
WITH finished AS MATERIALIZED (
        SELECT job.id, job.topic, job.unique_key, job.unique_scope
        FROM pulse.jobs AS job
        WHERE job.id = ANY(back) AND job.unique_scope = 'live' AND job.finished_at IS NOT NULL
    ),
    left_out AS MATERIALIZED (
        {finished_without_their_keys}
    ),
    stated AS (
        UPDATE pulse.jobs AS job
        SET finished_at = clock_timestamp(), last_error = 'Another job holds its unique key.'
        FROM left_out
        WHERE job.id = ANY(ARRAY[left_out.id])
    )
    UPDATE pulse.workflow_jobs AS node SET dropped = NULL FROM left_out WHERE node.job_id = ANY(ARRAY[left_out.id])

-- name: key_of_job_that_is_back
-- A key that is unique while its job waits stays free, as after a retry.
CASE WHEN job.unique_scope = 'live' THEN 'live' END

-- name: was_canceled_by_workflow
-- A CASE: other jobs are not looked up.
CASE WHEN job.held THEN EXISTS (
                    SELECT FROM pulse.workflow_jobs AS node WHERE node.job_id = job.id AND node.dropped IS NOT NULL) ELSE false END

-- name: waits_in_canceled_workflow
-- If the job were back, the next settle would cancel it again. A CASE, as above.
CASE WHEN job.held THEN EXISTS (
        SELECT FROM pulse.workflows AS workflow WHERE workflow.id = job.workflow_id AND workflow.canceled_at IS NOT NULL OFFSET 0) ELSE false END

-- name: decided_by_workflow
-- The values of {undoable} that a settler sets when it cancels the job or brings it back.
ARRAY['status', 'queued', 'next_run_at', 'start_by', 'finished_at', 'last_error', 'unique_scope']

-- name: unfinished_workflow
-- The job's workflow has not ended: its results are needed.
EXISTS (
        SELECT FROM pulse.workflows AS workflow
        WHERE workflow.id = job.workflow_id AND COALESCE(workflow.finished_at, 'infinity') = 'infinity'
        OFFSET 0
    )

-- name: workflow_end
-- While a notice is left, a job may have come back.
CASE WHEN NOT EXISTS (SELECT FROM pulse.workflow_notices AS notice WHERE notice.workflow_id = workflow.id)
        THEN workflow.finished_at END

-- name: workflow_status
CASE
        WHEN workflow.canceled_at IS NOT NULL THEN 'canceled'
        WHEN {workflow_end} IS NULL THEN 'running'
        WHEN workflow.failed + workflow.canceled > 0 THEN 'failed'
        ELSE 'succeeded'
    END

-- name: workflow
-- A workflow as it is read.
workflow.id, workflow.name, {workflow_status} AS status, workflow.jobs, workflow.unfinished, workflow.succeeded, workflow.failed, workflow.canceled,
    workflow.skipped, workflow.submitted_at, {workflow_end} AS finished_at, workflow.canceled_at, workflow.schedule_id
