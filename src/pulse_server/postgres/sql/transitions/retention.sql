-- Finished jobs that have been kept long enough are deleted. jobs.sql has the rules for all transitions. Completed jobs
-- have partitions by the day: completed_days.sql.

-- name: delete_expired(completed, canceled, dead_lettered, shortest, after_time, after_id, jobs)
-- From COMPLETED, CANCELED or DEAD_LETTERED, if it has been so for longer than its status is kept, to nothing. The
-- policy of its topic says how long, as it is now, and otherwise the settings of this server. A status without a
-- duration compares with NULL, and so does an unfinished job: neither is deleted. Looks at no more than a
-- batch, in the order of submission, by the index of the finished jobs. The rows are locked by primary key and the rule
-- is checked on the locked row: a retry that comes first wins, and one that is under way is not waited for. One server
-- at a time: another would only read the same rows.
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
    -- The bare column would let the planner look each of them up in jobs_finished, where the id is not the key.
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
