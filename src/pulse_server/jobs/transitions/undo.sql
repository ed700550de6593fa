-- Undoes an action of an operator: a cancel, a retry or a change of priority. jobs.sql has the rules
-- for all transitions. docs/figures.md#undo
--
-- A job keeps the values that its last action changed, in its column `undo`. A later action on the
-- job replaces them, so only the last one can be undone.

-- name: undo_jobs(ids, action)
-- Restores the values from before the :action, for jobs that are as it left them: canceled jobs wait
-- again as before, retried jobs that were not claimed since are finished as before, and priorities
-- are as before. Another action on the job since, by an operator or a worker, keeps the job as it
-- is. Steps, history and attempts are not changed: none of these actions changes them, unless the
-- job was running, and that one is left. A job that its workflow had canceled before the retry goes on
-- waiting: it is canceled again if its parents are as before. A job that waits enters its lane in the next claim. If
-- another job holds a unique key now, the whole statement fails, by the index jobs_unique.
WITH target AS MATERIALIZED (
    SELECT
        job.id, job.status AS status_before, was.status, was.queued, was.next_run_at, was.start_by, was.finished_at, was.finished_by,
        was.last_error, was.error_group, was.priority, was.max_attempts, was.crashes, was.unique_scope, was.waits_for
    FROM pulse.jobs AS job
    CROSS JOIN LATERAL jsonb_populate_record(NULL::pulse.jobs, {undoable} || (job.undo -> 'was')) AS was
    WHERE job.id = ANY(:ids::uuid[]) AND job.undo ->> 'action' = :action::text AND {is_as_left}
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE pulse.jobs AS job
SET status = target.status,
    ended_as = CASE WHEN target.finished_at IS NOT NULL THEN target.status END,
    queued = target.queued,
    next_run_at = target.next_run_at,
    start_by = target.start_by,
    finished_at = target.finished_at,
    finished_by = target.finished_by,
    last_error = target.last_error,
    error_group = target.error_group,
    priority = target.priority,
    max_attempts = target.max_attempts,
    crashes = target.crashes,
    unique_scope = target.unique_scope,
    waits_for = target.waits_for,
    tier = CASE WHEN job.locked_by IS NOT NULL THEN job.tier END,
    rank_at = CASE WHEN job.locked_by IS NOT NULL THEN job.rank_at END,
    undo = NULL
FROM target
WHERE job.id = ANY(ARRAY[target.id])
RETURNING {job}, target.status_before;
