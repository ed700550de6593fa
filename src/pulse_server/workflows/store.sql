-- Workflows: jobs that wait for jobs. The functions store_workflow_v1, add_to_workflow_v1 and
-- settle_workflows_v1 change jobs, and have the rules. ADR-0077

-- name: store_workflow(id, name, digest, schedule, definition)
-- From nothing to PENDING: ready at once, later, or waiting for other jobs of the workflow. All jobs
-- are stored, or none.
SELECT stored.is_new, stored.is_same, stored.ids
FROM pulse.store_workflow_v1(:id::uuid, :name::text, :digest::bytea, :schedule::uuid, :definition::text::jsonb) AS stored;

-- name: add_to_workflow(job, worker, attempt, run, definition, most_jobs, most_edges)
-- From nothing to PENDING, waiting, if the claim holds.
SELECT addition.problem, addition.names, addition.of_id, addition.ids, addition.added
FROM pulse.add_to_workflow_v1(
    :job::uuid, :worker::text, :attempt::int, :run::int, :definition::text::jsonb, :most_jobs::int, :most_edges::int
) AS addition;

-- name: settle_workflows(workflows, notices, rounds, jobs, wanted)
-- A waiting job becomes ready, or CANCELED, or comes back from CANCELED to waiting or ready.
SELECT settled.kind, settled.topic, settled.priority, settled.jobs, settled.age_seconds, settled.ids
FROM pulse.settle_workflows_v1(:workflows::int, :notices::int, :rounds::int, :jobs::int, :wanted::uuid[]) AS settled;

-- name: noticed_workflows(workflows)
-- Workflows that a settle would take.
SELECT DISTINCT notice.workflow_id FROM pulse.workflow_notices AS notice ORDER BY notice.workflow_id LIMIT :workflows::int;

-- name: cancel_workflow(id)
-- From now on no job of the workflow becomes ready, if one has not ended.
SELECT pulse.cancel_workflow_v1(:id::uuid) AS is_canceled;

-- name: leave_workflow(id, most)
-- In the transaction of cancel_workflow: has settlers cancel the waiting jobs, and returns the others
-- that have not ended. The first :most of them are locked from now on, before any is canceled: no claim
-- takes them meanwhile. `is_free`: no other session had locked the job.
WITH unended AS MATERIALIZED (
    SELECT job.id, job.held, row_number() OVER () - 1 AS place
    FROM pulse.workflow_jobs AS node
    JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
    WHERE node.workflow_id = :id::uuid AND job.status IN ('PENDING', 'RETRYING', 'RUNNING')
),
free AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY(ARRAY(SELECT unended.id FROM unended WHERE unended.held IS NULL LIMIT :most::int))
    ORDER BY job.id
    FOR NO KEY UPDATE SKIP LOCKED
),
noticed AS (
    INSERT INTO pulse.workflow_notices (workflow_id, job_ids, status)
    SELECT :id::uuid, array_agg(unended.id), 'PENDING' FROM unended WHERE unended.held GROUP BY unended.place / 1000
)
SELECT unended.id, unended.id IN (SELECT free.id FROM free) AS is_free FROM unended WHERE unended.held IS NULL;

-- name: retry_workflow(id)
-- The workflow is canceled no longer. It stays locked until bring_back has been committed with it: no
-- settler sees jobs that have come back beside parents that have not. Returns whether it was canceled.
WITH stood AS MATERIALIZED (
    SELECT workflow.id, workflow.canceled_at FROM pulse.workflows AS workflow WHERE workflow.id = :id::uuid FOR NO KEY UPDATE
),
reopened AS (
    UPDATE pulse.workflows AS workflow
    SET canceled_at = NULL
    FROM stood
    WHERE workflow.id = ANY(ARRAY[stood.id]) AND stood.canceled_at IS NOT NULL
)
SELECT stood.canceled_at IS NOT NULL AS was_canceled FROM stood;

-- name: unsuccessful_workflow_jobs(id)
-- Locks the jobs that ended without success, but for those that the workflow canceled, and those that
-- another session has locked.
SELECT job.id
FROM pulse.workflow_jobs AS node
JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
WHERE node.workflow_id = :id::uuid AND node.dropped IS NULL AND job.status IN ('DEAD_LETTERED', 'CANCELED')
FOR NO KEY UPDATE OF job SKIP LOCKED;

-- name: bring_back(id)
-- The jobs that the workflow canceled wait again.
SELECT pulse.reopen_workflow_v1(:id::uuid);

-- name: get_workflow(id)
SELECT {workflow} FROM pulse.workflows AS workflow WHERE workflow.id = :id::uuid;

-- name: list_workflows(name, status, after_time, after_id, most)
-- Newest first, after (:after_time, :after_id); NULL: from the newest on.
SELECT {workflow}
FROM pulse.workflows AS workflow
WHERE (:after_time::timestamptz IS NULL OR (workflow.submitted_at, workflow.id) < (:after_time::timestamptz, :after_id::uuid))
  AND (:name::text IS NULL OR workflow.name = :name::text) AND workflow.name >= ''
  AND (:status::text IS NULL OR {workflow_status} = :status::text)
ORDER BY workflow.submitted_at DESC, workflow.id DESC
LIMIT :most;

-- name: list_workflow_jobs(workflow, child, names, unended, after, most, results)
-- The jobs of the workflow after the number :after, in the order of their numbers: all, or only
-- parents of the job :child, or those with the names, or both. With :results, their results. Only the
-- jobs of the page are looked up; of named parents, all that have the names.
WITH named AS MATERIALIZED (
    SELECT node.*
    FROM (SELECT DISTINCT asked.name FROM unnest(:names::text[]) AS asked (name)) AS asked
    CROSS JOIN LATERAL (
        SELECT known.* FROM pulse.workflow_jobs AS known
        WHERE (known.workflow_id::text || known.name) COLLATE "C" = :workflow::uuid::text || asked.name OFFSET 0
    ) AS node
),
node AS MATERIALIZED (
    SELECT near.*
    FROM (
        (SELECT node.*
        FROM pulse.workflow_jobs AS node
        WHERE :child::uuid IS NULL AND :names::text[] IS NULL
          AND node.workflow_id = :workflow::uuid AND node.number > :after::int AND (NOT :unended::bool OR node.outcome IS NULL)
        ORDER BY node.number
        LIMIT :most)
        UNION ALL
        (SELECT node.*
        FROM pulse.workflow_edges AS edge
        CROSS JOIN LATERAL (SELECT known.* FROM pulse.workflow_jobs AS known WHERE known.job_id = edge.parent OFFSET 0) AS node
        WHERE :names::text[] IS NULL
          AND edge.child = :child::uuid AND edge.number > :after::int AND (NOT :unended::bool OR node.outcome IS NULL)
        ORDER BY edge.number
        LIMIT :most)
        UNION ALL
        SELECT named.*
        FROM named
        WHERE named.number > :after::int AND (NOT :unended::bool OR named.outcome IS NULL)
          AND (:child::uuid IS NULL OR EXISTS (
              SELECT FROM pulse.workflow_edges AS edge WHERE edge.child = :child::uuid AND edge.number = named.number OFFSET 0))
    ) AS near
    ORDER BY near.number
    LIMIT :most
)
SELECT
    node.number, node.job_id, node.name, node.topic, node.condition, node.dropped, node.outcome, node.unended,
    CASE WHEN done.id IS NOT NULL THEN 'COMPLETED' ELSE job.status END AS status, job.held,
    COALESCE(done.attempts, job.attempts) AS attempts,
    COALESCE(done.started_at, job.started_at) AS started_at,
    COALESCE(done.finished_at, job.finished_at) AS finished_at,
    CASE WHEN job.held IS NULL AND job.finished_at IS NULL THEN NULLIF(job.next_run_at, {without_end}) END AS next_run_at,
    CASE WHEN job.status = 'RETRYING' AND NOT {is_ready} THEN job.waits_for END AS waits_for,
    COALESCE(done.last_error, job.last_error) AS last_error,
    CASE WHEN :results::bool THEN COALESCE(done.result, job.result) END AS result,
    ARRAY(
        SELECT edge.number FROM pulse.workflow_edges AS edge WHERE edge.child = node.job_id ORDER BY edge.number
    ) AS parents
FROM node
CROSS JOIN LATERAL (SELECT known.submitted_at FROM pulse.workflows AS known WHERE known.id = node.workflow_id OFFSET 0) AS workflow
LEFT JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[node.job_id])
-- A job that is in neither table has been deleted. The time leaves out the days before the workflow.
LEFT JOIN LATERAL (
    SELECT found.*
    FROM pulse.completed_jobs AS found
    WHERE job.id IS NULL AND found.id = node.job_id AND found.finished_at >= workflow.submitted_at - interval '1 hour'
    LIMIT 1
) AS done ON true
ORDER BY node.number;

-- name: find_workflow_job(job)
-- The workflow of a job.
SELECT node.workflow_id FROM pulse.workflow_jobs AS node WHERE node.job_id = :job::uuid;
