-- Searches of jobs by a part of what they have. No index covers that: a search compares the newest
-- jobs of its filter one by one.

-- name: search_jobs
-- listing.py completes this section and the next one, as it does with list_jobs.
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
