-- Deletes finished jobs that have been kept long enough. jobs.sql has the rules for all
-- transitions. Completed jobs have partitions by the day: completed_days.sql.

-- name: delete_expired(completed, canceled, dead_lettered, shortest, after_time, after_id, jobs)
-- From COMPLETED, CANCELED or DEAD_LETTERED to nothing, if the job has been finished for longer
-- than its status is kept. The current policy of its topic sets the duration, and otherwise the
-- settings of this server. An unfinished job, or a status without a duration, compares with NULL
-- and is not deleted. Reads at most one batch, in the order of submission, by the index of the
-- finished jobs. The rows are locked by primary key, and the rule is checked on the locked row: a
-- retry that comes first wins, and a concurrent retry is not waited for. One server at a time: a
-- second would only read the same rows.
-- :shortest is the shortest of the three durations.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(482973020531) AS is_ours
),
shortest AS MATERIALIZED (
    SELECT min(LEAST(policy.completed_kept, policy.canceled_kept, policy.dead_lettered_kept)) AS kept
    FROM pulse.topic_policies AS policy
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
    JOIN pulse.jobs AS job ON job.id = looked_at.id
    LEFT JOIN pulse.topic_policies AS policy ON policy.topic = job.topic
    -- The bare column would let the planner look up each job in jobs_finished, where the id is not
    -- the key.
    WHERE COALESCE(job.finished_at, 'infinity') < now() - CASE job.status
        WHEN 'COMPLETED' THEN COALESCE(policy.completed_kept, :completed::interval)
        WHEN 'CANCELED' THEN COALESCE(policy.canceled_kept, :canceled::interval)
        WHEN 'DEAD_LETTERED' THEN COALESCE(policy.dead_lettered_kept, :dead_lettered::interval)
    END
    FOR UPDATE OF job SKIP LOCKED
),
deleted AS (
    DELETE FROM pulse.jobs AS job
    USING expired
    WHERE job.id = expired.id
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
