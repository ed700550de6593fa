-- Exports: finished jobs are read whole, in the order of submission. That order is that of the indexes, and no
-- transition changes a job's place in it: a job that moves on, or that is moved, is met once at the most.

-- name: export_jobs(after_time, after_id, look_at, most_bytes, since, before, topic, statuses)
-- Looks at no more than :look_at jobs, of which those that match are returned, up to :most_bytes bytes. What is looked at is bounded, and
-- not what is found: one job in a million must not take a statement that reads a million. The conditions on jobs come
-- after that bound. The sizes are those of the stored values: none is read before it is returned.
WITH looked_at AS MATERIALIZED (
    {finished_after}
),
matching AS (
    SELECT looked_at.*, {export_bytes} AS bytes
    FROM looked_at
    WHERE looked_at.finished_at < :before::timestamptz
      AND (:since::timestamptz IS NULL OR looked_at.finished_at >= :since::timestamptz)
      AND (:topic::text IS NULL OR looked_at.topic = :topic::text)
      AND looked_at.status = ANY(:statuses::text[])
),
measured AS (
    SELECT
        matching.*,
        sum(matching.bytes) OVER in_order - matching.bytes AS bytes_before,
        count(*) OVER () AS matched
    FROM matching
    WINDOW in_order AS (ORDER BY matching.submitted_at, matching.id ROWS UNBOUNDED PRECEDING)
)
SELECT walk.looked_at, walk.last_submitted_at, walk.last_id, measured.*,
    COALESCE(measured.timeline, unfinished.timeline) AS step_list
FROM (
    SELECT
        count(*) AS looked_at,
        max(looked_at.submitted_at) AS last_submitted_at,
        (array_agg(looked_at.id ORDER BY looked_at.submitted_at DESC, looked_at.id DESC))[1] AS last_id
    FROM looked_at
) AS walk
LEFT JOIN measured ON measured.bytes_before < :most_bytes::bigint
-- Of jobs that did not complete, as a completed one keeps it.
LEFT JOIN LATERAL (
    SELECT jsonb_agg({step_in_timeline} ORDER BY step.position, step.name) AS timeline
    FROM pulse.job_steps AS step
    WHERE step.job_id = measured.id AND measured.steps > 0 AND measured.timeline IS NULL
) AS unfinished ON true
ORDER BY measured.submitted_at, measured.id;

-- name: moment_ago
SELECT clock_timestamp() - $1::interval AS moment;
