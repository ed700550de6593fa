-- Deletes finished jobs that have been kept long enough. jobs/transitions/jobs.sql has the rules for all
-- transitions. Completed jobs have partitions by the day: completed_days.sql.

-- name: delete_expired(completed, canceled, dead_lettered, shortest, after_time, after_id, jobs)
-- From COMPLETED, CANCELED or DEAD_LETTERED to nothing, if the job has been finished for longer
-- than its status is kept. The settings of its topic have the duration, and otherwise the settings of
-- this server; a shortened duration counts after its grace time. An unfinished job, or a status without a duration, compares with NULL
-- and is not deleted. Reads at most one batch, in the order of submission, by the index of the
-- finished jobs. The rows are locked by primary key, and the rule is checked on the locked row: a
-- retry that comes first wins, and a concurrent retry is not waited for. One server at a time: a
-- second would only read the same rows.
-- :shortest is the shortest of the three durations.
WITH turn AS MATERIALIZED (
    SELECT pulse.try_lock_v1('retention') AS is_ours
),
shortest AS MATERIALIZED (
    SELECT min(LEAST(own.completed_kept, own.canceled_kept, own.dead_lettered_kept)) AS kept
    FROM pulse.retention_in_force AS own
),
looked_at AS MATERIALIZED (
    SELECT job.id, job.submitted_at
    FROM pulse.jobs AS job
    WHERE (SELECT turn.is_ours FROM turn)
      AND (job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid)
      -- Nothing finishes before it is submitted.
      AND job.submitted_at < now() - LEAST(:shortest::interval, (SELECT shortest.kept FROM shortest))
      AND job.finished_at IS NOT NULL
    ORDER BY job.submitted_at, job.id
    LIMIT :jobs
),
expired AS MATERIALIZED (
    SELECT job.id
    FROM looked_at
    JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[looked_at.id])
    LEFT JOIN pulse.retention_in_force AS own ON own.topic = ANY(ARRAY[job.topic])
    -- The bare column would let the planner look up each job in jobs_finished, where the id is not
    -- the key.
    WHERE COALESCE(job.finished_at, 'infinity') < now() - CASE job.status
        WHEN 'COMPLETED' THEN COALESCE(own.completed_kept, :completed::interval)
        WHEN 'CANCELED' THEN COALESCE(own.canceled_kept, :canceled::interval)
        WHEN 'DEAD_LETTERED' THEN COALESCE(own.dead_lettered_kept, :dead_lettered::interval)
    END
      AND NOT {unfinished_workflow}
    FOR UPDATE OF job SKIP LOCKED
),
deleted AS (
    DELETE FROM pulse.jobs AS job
    USING expired
    WHERE job.id = ANY(ARRAY[expired.id])
    RETURNING job.id, job.status, job.steps
),
{steps_of_deleted}
SELECT
    turn.is_ours,
    (SELECT count(*) FROM looked_at) AS looked_at,
    reached.submitted_at,
    reached.id,
    (SELECT count(*) FROM deleted WHERE deleted.status = 'COMPLETED') AS completed,
    (SELECT count(*) FROM deleted WHERE deleted.status = 'CANCELED') AS canceled,
    (SELECT count(*) FROM deleted WHERE deleted.status = 'DEAD_LETTERED') AS dead_lettered
FROM turn
LEFT JOIN LATERAL (
    SELECT looked_at.submitted_at, looked_at.id
    FROM looked_at
    ORDER BY looked_at.submitted_at DESC, looked_at.id DESC
    LIMIT 1
) AS reached ON true;

-- name: delete_workflows(succeeded, unsuccessful, most)
-- Deletes workflows that ended long ago, with their edges and the records of their jobs. Jobs
-- follow the retention of their topics, and belong to no workflow from now on: a dropped job that
-- is retried later would wait for ever. One that was retried a moment ago is ready. A job may end
-- while its workflow is deleted: the next call deletes its notice. :succeeded and :unsuccessful are
-- how long workflows are kept;
-- NULL: forever.
WITH ended AS MATERIALIZED (
    SELECT workflow.id
    FROM pulse.workflows AS workflow
    WHERE workflow.finished_at < now() - LEAST(:succeeded::interval, :unsuccessful::interval)
      AND workflow.finished_at < now()
          - CASE WHEN workflow.failed + workflow.canceled = 0 THEN :succeeded::interval ELSE :unsuccessful::interval END
    ORDER BY workflow.finished_at
    LIMIT :most
    FOR UPDATE SKIP LOCKED
),
nodes AS (
    DELETE FROM pulse.workflow_jobs AS node USING ended WHERE node.workflow_id = ANY(ARRAY[ended.id]) RETURNING node.job_id
),
edges AS (
    DELETE FROM pulse.workflow_edges AS edge USING nodes WHERE edge.child = ANY(ARRAY[nodes.job_id])
),
left_behind AS (
    UPDATE pulse.jobs AS job
    SET workflow_id = NULL,
        held = NULL,
        queued = job.queued OR (job.held IS TRUE AND job.finished_at IS NULL),
        next_run_at = CASE WHEN job.held AND job.finished_at IS NULL THEN clock_timestamp() ELSE job.next_run_at END
    FROM nodes
    WHERE job.id = ANY(ARRAY[nodes.job_id])
),
notices AS (
    DELETE FROM pulse.workflow_notices AS notice USING ended WHERE notice.workflow_id = ANY(ARRAY[ended.id])
),
late_notices AS (
    DELETE FROM pulse.workflow_notices AS notice
    WHERE NOT EXISTS (SELECT FROM pulse.workflows AS workflow WHERE workflow.id = notice.workflow_id OFFSET 0)
)
DELETE FROM pulse.workflows AS workflow USING ended WHERE workflow.id = ANY(ARRAY[ended.id]) RETURNING workflow.id;
