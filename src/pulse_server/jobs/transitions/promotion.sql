-- Waiting jobs become ready once they are due; the status stays. Jobs past their start_by are
-- canceled. jobs.sql has the rules for all transitions.

-- name: promote_due(jobs)
-- PENDING or RETRYING becomes ready once next_run_at has passed. Returns the topics with new ready
-- jobs. The last row has the seconds until the next job is due.
WITH due AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE {waits} AND job.next_run_at <= now()
    ORDER BY job.next_run_at
    LIMIT :jobs
    FOR UPDATE SKIP LOCKED
),
{promoted}
SELECT {promoted_levels}, NULL::float8 AS next_due_in_seconds
FROM promoted
GROUP BY promoted.topic, promoted.priority
UNION ALL
SELECT NULL, 0, 0, 0, (
    SELECT EXTRACT(epoch FROM job.next_run_at - clock_timestamp())::float8
    FROM pulse.jobs AS job
    WHERE {waits} AND job.next_run_at > now()
    ORDER BY job.next_run_at
    LIMIT 1
);

-- name: promote_in_turn(jobs, of_each, after_topic, topics)
-- promote_due for a few jobs of each topic, while more jobs are due than fit into a batch: by age
-- alone, one topic with 300,000 due jobs would delay all other topics. The walk goes from topic to
-- topic with one index probe each. It reads at most :topics topics and takes at most :jobs jobs.
-- The last row has the topic after which the next walk continues. docs/figures.md#promotion
WITH RECURSIVE waiting AS (
    (
        SELECT job.topic, job.next_run_at
        FROM pulse.jobs AS job
        WHERE {waits_in_turn} AND job.topic > :after_topic::text
        ORDER BY job.topic, job.next_run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.topic, following.next_run_at
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT job.topic, job.next_run_at
        FROM pulse.jobs AS job
        WHERE {waits_in_turn} AND job.topic > waiting.topic
        ORDER BY job.topic, job.next_run_at
        LIMIT 1
    ) AS following
),
looked_at AS MATERIALIZED (
    SELECT waiting.topic, waiting.next_run_at FROM waiting LIMIT :topics
),
due AS MATERIALIZED (
    SELECT candidate.id, looked_at.topic
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pulse.jobs AS job
        WHERE {waits_in_turn}
          AND job.topic = looked_at.topic AND job.next_run_at <= now()
        ORDER BY job.next_run_at
        LIMIT :of_each
        FOR UPDATE SKIP LOCKED
    ) AS candidate
    WHERE looked_at.next_run_at <= now()
    LIMIT :jobs
),
{promoted}
SELECT {promoted_levels}, NULL AS last_topic
FROM promoted
GROUP BY promoted.topic, promoted.priority
UNION ALL
SELECT NULL, 0, 0, 0, CASE
    WHEN (SELECT count(*) FROM due) >= :jobs THEN (SELECT max(due.topic) FROM due)
    WHEN (SELECT count(*) FROM looked_at) >= :topics THEN (SELECT max(looked_at.topic) FROM looked_at)
    ELSE ''
END;

-- name: cancel_unstarted(jobs)
-- From PENDING or RETRYING to CANCELED, if start_by has passed and the job was never started. No
-- claim takes such a job, so this may run late.
WITH late AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.start_by <= now() AND COALESCE(job.finished_at, 'infinity') = 'infinity'
      AND job.locked_by IS NULL AND job.attempts = 0
    ORDER BY job.start_by
    LIMIT :jobs
    FOR UPDATE SKIP LOCKED
)
UPDATE pulse.jobs AS job
SET status = 'CANCELED',
    ended_as = 'CANCELED',
    queued = false,
    finished_at = clock_timestamp(),
    last_error = format(
        'not started by %s UTC, as start_within asks', to_char(job.start_by AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
FROM late
WHERE job.id = ANY(ARRAY[late.id])
RETURNING {job};
