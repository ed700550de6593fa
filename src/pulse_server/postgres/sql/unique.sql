-- The holders of unique keys, and of the periods of throttled keys. transitions/unique.sql has the
-- statements that change a job.

-- name: find_rivals(ids, topics, payloads, unique_keys, finished_since, scopes, is_throttled)
-- find_existing for unique jobs. Also finds the job that holds the unique key, and the last job
-- stored for a throttled key.
SELECT new.position, job.id, job.reason, job.same, job.waits, job.submitted_at
FROM unnest(:ids::uuid[], :topics::text[], :payloads::bytea[], :unique_keys::text[], :scopes::text[], :is_throttled::bool[])
    WITH ORDINALITY AS new (id, topic, payload, unique_key, unique_scope, is_throttled, position)
CROSS JOIN LATERAL (
    SELECT known.id, 'id' AS reason, {repeats_submit} AS same, false AS waits, known.submitted_at
    FROM (
        {known_by_id}
    ) AS known
    UNION ALL
    SELECT job.id, 'unique', true, job.status = 'PENDING', job.submitted_at
    FROM pulse.jobs AS job
    WHERE {holds_unique_key}
    UNION ALL
    SELECT known.job_id, 'period', true, false, NULL
    FROM pulse.unique_periods AS known
    WHERE new.is_throttled AND known.topic = new.topic AND known.key = new.unique_key AND known.until > clock_timestamp()
) AS job
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: unique_holders(ids, scopes)
-- Finished jobs whose key cannot be taken again, each with the job that holds it, or that would take
-- it before. Applies to keys of the scopes in :scopes.
WITH finished AS MATERIALIZED (
    SELECT job.id, job.topic, job.unique_key, job.unique_scope
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[]) AND job.unique_scope = ANY(:scopes::text[]) AND job.finished_at IS NOT NULL
)
{finished_without_their_keys};
