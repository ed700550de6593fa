-- Reading jobs. Nothing here changes a row.
--
-- Some of them confirm an earlier commit: a caller that repeats a request learns that it was stored. A commit that
-- changes nothing waits for no synchronous standby, and the row it saw may not be on one: its own commit was ended
-- while it waited, by a cancel or by a crash. The message in the WAL makes theirs a commit that waits; whatever
-- it could see is before it. ADR-0035

-- name: get_job
SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor
FROM pulse.all_jobs AS job
WHERE job.id = $1::uuid;

-- name: look_up_jobs
-- By id, for judging what a fence refused. The payload stays in the database.
SELECT id, topic, status, priority, attempts, run, max_attempts, submitted_at, next_run_at, {is_ready} AS ready,
       delivered, locked_by, lease_until, started_at, finished_at, finished_by, history
FROM pulse.all_jobs AS job
WHERE id = ANY($1::uuid[])
  AND (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: job_statuses
-- By id, for the jobs that an operator's action skipped.
SELECT job.id, job.status FROM pulse.all_jobs AS job WHERE job.id = ANY($1::uuid[]);

-- name: find_existing(ids, topics, payloads, unique_keys, finished_since)
-- The jobs that have the id of a new job. `same`: the submit of the new job made it.
SELECT new.position, known.id, true AS by_id, {repeats_submit} AS same
FROM unnest(:ids::uuid[], :topics::text[], :payloads::bytea[], :unique_keys::text[])
    WITH ORDINALITY AS new (id, topic, payload, unique_key, position)
CROSS JOIN LATERAL (
    {known_by_id}
) AS known
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: find_existing_by_key(ids, topics, payloads, unique_keys, idempotency_keys)
-- The same by topic and idempotency key (:idempotency_keys): in all days, because a key has no time.
SELECT new.position, known.id, known.id = new.id AS by_id, {repeats_submit} AS same
FROM unnest(:ids::uuid[], :topics::text[], :payloads::bytea[], :unique_keys::text[], :idempotency_keys::text[])
    WITH ORDINALITY AS new (id, topic, payload, unique_key, idempotency_key, position)
JOIN pulse.all_jobs AS known ON known.topic = new.topic AND known.idempotency_key = new.idempotency_key
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: current_claims(ids, workers, attempts, runs)
-- Those of the claims that still hold, by the fence of extend_leases.
SELECT claim.id, claim.worker_id, claim.attempt, claim.run
FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[]) AS claim (id, worker_id, attempt, run)
JOIN pulse.jobs AS job
  ON {claim_holds};

-- name: topics_with_ready_jobs
-- Those of the topics that have something to claim: one index probe each. An EXISTS would be made a join, and
-- with statistics of a time when nothing was ready that join reads the whole claim index; LIMIT forbids it.
-- The names are one text, a line for each: the driver takes 2.5 µs to encode each entry of an array, which for
-- workers of 60,000 topics held the event loop for 150 ms twice a second.
SELECT wanted.topic
FROM unnest(string_to_array($1::text, chr(10))) AS wanted (topic)
CROSS JOIN LATERAL (
    SELECT FROM pulse.jobs AS job WHERE job.topic = wanted.topic AND {is_claimable} LIMIT 1
) AS probe;

-- name: steady_for
-- For how long servers have been heard of without a gap, back from $1 ago: one that was heard of until another began, or
-- fell silent later than that, adds its own time. The silence that counts is that of reap_expired. ADR-0072
WITH RECURSIVE chain (since) AS (
    SELECT now() - $1::interval
    UNION
    SELECT earlier.steady_since
    FROM chain
    CROSS JOIN LATERAL (
        SELECT server.steady_since
        FROM pulse.servers AS server
        WHERE server.silent_from >= chain.since AND server.steady_since < chain.since
        ORDER BY server.steady_since
        LIMIT 1
    ) AS earlier
)
SELECT now() - min(chain.since) AS steady_for FROM chain;

-- name: database_now
SELECT clock_timestamp() AS now;

-- name: find_jobs
-- By the beginning of their ids, which is a range of the primary key, and of the index of each partition.
SELECT job.id
FROM pulse.all_jobs AS job
WHERE job.id BETWEEN $1::uuid AND $2::uuid
ORDER BY job.id
LIMIT $3;

-- Six that listing.py completes: it adds the conditions of a filter to the text, once for each partial index that has
-- some of the rows, and puts the arms together. A fixed text with `$1 IS NULL OR …` would leave the planner no index.

-- name: list_jobs
-- Newest first. Payload and history are fetched one job at a time.
SELECT {job} FROM pulse.jobs AS job WHERE true;

-- name: list_jobs_completed
SELECT {completed_job} FROM pulse.completed_jobs AS job WHERE true;

-- name: matching_jobs
-- Newest first, their keys alone.
SELECT submitted_at, id FROM pulse.jobs WHERE true;

-- name: matching_jobs_completed
SELECT submitted_at, id FROM pulse.completed_jobs WHERE true;

-- name: count_matching_jobs
SELECT count(*) AS jobs FROM pulse.jobs WHERE true;

-- name: count_matching_jobs_completed
SELECT count(*) AS jobs FROM pulse.completed_jobs WHERE true;
