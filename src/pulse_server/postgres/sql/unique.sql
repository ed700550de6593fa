-- Who holds a unique key, and who took the period of a throttled one. No job is changed here; transitions/unique.sql does.

-- name: find_rivals
-- find_existing for unique jobs: the jobs with the id or the idempotency key, the one that holds the unique key, and the
-- one that was stored last of a throttled key. A job that was replaced has another payload than it was submitted with: to a
-- repeat of that submit it is the same if the unique key is.
--   $5 unique keys   $6 scopes   $7 whether it is throttled
SELECT new.position, job.id, job.reason, job.same, job.waits
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bool[])
    WITH ORDINALITY AS new (id, topic, payload, idempotency_key, unique_key, unique_scope, is_throttled, position)
CROSS JOIN LATERAL (
    SELECT by_id.id, 'id' AS reason, {repeats_submit} AS same, false AS waits
    FROM pulse.all_jobs AS by_id
    CROSS JOIN LATERAL (SELECT by_id.topic, by_id.payload, by_id.unique_key) AS known
    WHERE by_id.id = new.id
    UNION ALL
    SELECT by_key.id, 'key', {repeats_submit}, false
    FROM pulse.all_jobs AS by_key
    CROSS JOIN LATERAL (SELECT by_key.topic, by_key.payload, by_key.unique_key) AS known
    WHERE by_key.topic = new.topic AND by_key.idempotency_key = new.idempotency_key
    UNION ALL
    SELECT job.id, 'unique', true, job.status = 'PENDING'
    FROM pulse.jobs AS job
    WHERE {holds_unique_key}
    UNION ALL
    SELECT known.job_id, 'period', true, false
    FROM pulse.unique_periods AS known
    WHERE new.is_throttled AND known.topic = new.topic AND known.key = new.unique_key AND known.until > clock_timestamp()
) AS job
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: unique_holders
-- Those of the finished jobs that hold a key as long as they live, and whose key another one holds meanwhile, or another
-- of these would: with that job.
WITH finished AS MATERIALIZED (
    SELECT job.id, job.topic, job.unique_key, job.unique_scope,
        first_value(job.id) OVER (PARTITION BY job.topic, job.unique_key ORDER BY job.id) AS first_id
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[]) AND job.unique_scope = 'live' AND job.finished_at IS NOT NULL
)
SELECT new.id, COALESCE(holder.id, new.first_id) AS holder_id, new.unique_key
FROM finished AS new
LEFT JOIN LATERAL (SELECT job.id FROM pulse.jobs AS job WHERE {holds_unique_key} LIMIT 1) AS holder ON true
WHERE holder.id IS NOT NULL OR new.first_id <> new.id;
