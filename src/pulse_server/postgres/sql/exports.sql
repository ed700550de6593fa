-- Exports: finished jobs are read whole, in the order of submission. The indexes have this order,
-- and no transition changes a job's place in it: each job is exported at most once, even if it
-- moves between tables.

-- name: export_jobs(after_time, after_id, look_at, most_bytes, since, before, topics, statuses)
-- Reads at most :look_at jobs, and returns the matching ones, up to :most_bytes bytes. The number
-- of jobs read is bounded, not the number found: a search for one job in a million must not read a
-- million in one statement. So the conditions on jobs come after that bound. Sizes come from the
-- stored values: a value is read only when it is returned.
WITH looked_at AS MATERIALIZED (
    {finished_after}
),
matching AS (
    SELECT looked_at.*, {export_bytes} AS bytes
    FROM looked_at
    WHERE looked_at.finished_at < :before::timestamptz
      AND (:since::timestamptz IS NULL OR looked_at.finished_at >= :since::timestamptz)
      AND (:topics::text[] IS NULL OR looked_at.topic = ANY(:topics::text[]))
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
-- For jobs that did not complete: the timeline that a completed job has.
LEFT JOIN LATERAL (
    SELECT jsonb_agg({step_in_timeline} ORDER BY step.position, step.name) AS timeline
    FROM pulse.job_steps AS step
    WHERE step.job_id = measured.id AND measured.steps > 0 AND measured.timeline IS NULL
) AS unfinished ON true
ORDER BY measured.submitted_at, measured.id;

-- name: moment_ago(span)
SELECT clock_timestamp() - :span::interval AS moment;
