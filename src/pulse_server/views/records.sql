-- Searches of jobs by a part of what they have. No index covers that: a search compares the newest
-- jobs of its filter one by one.
--
-- Exports: finished jobs are read whole, in the order of submission. The indexes have this order,
-- and no transition changes a job's place in it: each job is exported at most once, even if it
-- moves between tables.

-- name: search_jobs
-- Listing of jobs/reads.py completes this section and the next one, as it does with list_jobs.
SELECT submitted_at, id, topic, COALESCE(locked_by, finished_by) AS worker, lane, idempotency_key, unique_key, payload
FROM pulse.jobs WHERE true;

-- name: search_jobs_completed
SELECT submitted_at, id, topic, finished_by AS worker, lane, idempotency_key, unique_key, payload
FROM pulse.completed_jobs WHERE true;

-- name: found_jobs(ids)
SELECT {job}
FROM pulse.all_jobs AS job
WHERE job.id = ANY(:ids::uuid[])
ORDER BY job.submitted_at DESC, job.id DESC;

-- name: field_is_indexed(topic, path)
-- Whether an administrator has indexed the field for the topic, in both tables: in the form that
-- docs/operations/database.md has.
SELECT count(DISTINCT index.indrelid) = 2 AS is_indexed
FROM pg_catalog.pg_index AS index
WHERE index.indrelid IN ('pulse.jobs'::regclass, 'pulse.completed_jobs'::regclass)
  AND index.indisvalid
  AND pg_catalog.pg_get_expr(index.indexprs, index.indrelid)
      = format('pulse.payload_field_v1(payload, %L::text[])', (:path::text[])::text)
  AND pg_catalog.pg_get_expr(index.indpred, index.indrelid) = format('(topic = %L::text)', :topic::text);

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
