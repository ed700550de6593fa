-- Reading jobs. Nothing here changes a row.
--
-- Some statements confirm an earlier commit: a caller that repeats a request learns that it was
-- stored. A commit without changes waits for no synchronous standby. But the row that it saw may be
-- missing there: a cancel or a crash may have ended the wait of that row's own commit. The message
-- in the WAL makes this commit wait too, and every row it could see comes before the message.
-- docs/figures.md#repeats-and-standbys
--
-- The holders of unique keys, and of the periods of throttled keys. jobs/transitions/unique.sql has the
-- statements that change a job.

-- name: get_job(id)
SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor
FROM pulse.all_jobs AS job
WHERE job.id = :id::uuid;

-- name: look_up_jobs(ids)
-- By id, to judge a report that the fence refused. The payload stays in the database.
SELECT id, topic, status, priority, attempts, run, max_attempts, submitted_at, next_run_at, {is_ready} AS ready,
       delivered, locked_by, lease_until, started_at, finished_at, finished_by, history
FROM pulse.all_jobs AS job
WHERE id = ANY(:ids::uuid[])
  AND (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: job_statuses(ids)
-- By id, for the jobs that an operator's action skipped.
SELECT job.id, job.status FROM pulse.all_jobs AS job WHERE job.id = ANY(:ids::uuid[]);

-- name: jobs_of_unended_workflows(ids)
-- By id, for the jobs that a delete skipped.
SELECT job.job_id AS id
FROM pulse.workflow_jobs AS job
WHERE job.job_id = ANY(:ids::uuid[]) AND {unfinished_workflow};

-- name: canceled_workflows_of(ids)
-- By id, for the jobs that a retry skipped.
SELECT job.id, job.workflow_id FROM pulse.jobs AS job WHERE job.id = ANY(:ids::uuid[]) AND {waits_in_canceled_workflow};

-- name: find_existing(ids, topics, payloads, unique_keys, finished_since)
-- The jobs that have the id of a new job. `same`: the submit of the new job made this job.
SELECT new.position, known.id, true AS by_id, {repeats_submit} AS same, known.submitted_at
FROM unnest(:ids::uuid[], :topics::text[], :payloads::bytea[], :unique_keys::text[])
    WITH ORDINALITY AS new (id, topic, payload, unique_key, position)
CROSS JOIN LATERAL (
    {known_by_id}
) AS known
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: find_existing_by_key(ids, topics, payloads, unique_keys, idempotency_keys)
-- find_existing by topic and idempotency key. Reads all days, because a key has no time.
SELECT new.position, known.id, known.id = new.id AS by_id, {repeats_submit} AS same, known.submitted_at
FROM unnest(:ids::uuid[], :topics::text[], :payloads::bytea[], :unique_keys::text[], :idempotency_keys::text[])
    WITH ORDINALITY AS new (id, topic, payload, unique_key, idempotency_key, position)
CROSS JOIN LATERAL (
    SELECT job.id, job.topic, job.payload, job.unique_key, job.submitted_at
    FROM pulse.all_jobs AS job
    WHERE job.topic = new.topic AND job.idempotency_key = new.idempotency_key
    OFFSET 0
) AS known
WHERE (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: current_claims(ids, workers, attempts, runs)
-- The claims that still hold, by the fence of extend_leases.
SELECT claim.id, claim.worker_id, claim.attempt, claim.run
FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[]) AS claim (id, worker_id, attempt, run)
JOIN pulse.jobs AS job
  ON {claim_holds};

-- name: topics_with_ready_jobs(topics)
-- The topics that have a job to claim: one index probe each. The planner would make a join of an
-- EXISTS. With statistics from a time when nothing was ready, that join reads the whole claim
-- index. LIMIT prevents it. The names are one text, a line each: the driver takes 2.5 µs to encode
-- each entry of an array. For workers of 60,000 topics this held the event loop for 150 ms twice a
-- second.
SELECT wanted.topic
FROM unnest(string_to_array(:topics::text, chr(10))) AS wanted (topic)
CROSS JOIN LATERAL (
    SELECT FROM pulse.jobs AS job WHERE job.topic = wanted.topic AND {is_claimable} LIMIT 1
) AS probe;

-- name: steady_for(own)
-- How long servers have been seen without a gap, counted back from :own ago. A server adds its own
-- time if it was still seen when the following one began. It counts as silent by the same rule as
-- in reap_expired. docs/figures.md#the-caution-of-the-watchdog
WITH RECURSIVE chain (since) AS (
    SELECT now() - :own::interval
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

-- name: find_jobs(first, last, most)
-- By the beginning of the id: a range of the primary key, and of the index of each partition.
SELECT job.id
FROM pulse.all_jobs AS job
WHERE job.id BETWEEN :first::uuid AND :last::uuid
ORDER BY job.id
LIMIT :most;

-- reads.py completes the next six. It adds the conditions of a filter to the text, once for each
-- partial index with matching rows, and combines the arms. A fixed text with `:since IS NULL OR …`
-- would leave the planner no index.

-- name: list_jobs
-- Newest first. Payload and history are fetched one job at a time.
SELECT {job} FROM pulse.jobs AS job WHERE true;

-- name: list_jobs_completed
SELECT {completed_job} FROM pulse.completed_jobs AS job WHERE true;

-- name: matching_jobs
-- The keys of matching jobs, newest first.
SELECT submitted_at, id FROM pulse.jobs WHERE true;

-- name: matching_jobs_completed
SELECT submitted_at, id FROM pulse.completed_jobs WHERE true;

-- name: count_matching_jobs
SELECT FROM pulse.jobs WHERE true;

-- name: count_matching_jobs_completed
SELECT FROM pulse.completed_jobs WHERE true;

-- name: jobs_of_action(action, after_id, jobs)
-- The next jobs that the :action changed last, whether each can be undone, and whether it was
-- running. In the order of their ids: the jobs of a workflow come after the jobs that they wait for.
SELECT job.id, {is_as_left} AS can_be_undone, job.undo ? 'running' AS was_running
FROM pulse.jobs AS job
WHERE job.undo ->> 'action' = :action::text AND job.undo IS NOT NULL AND job.topic >= '' AND job.id > :after_id::uuid
ORDER BY job.id
LIMIT :jobs;

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

-- name: list_steps_of_claimed(ids, most_of_one, most_bytes, bytes_of_each)
-- The steps of freshly claimed jobs, in order, for their workers. They do not change before the
-- job's attempt changes them. A job with signals but no steps has a row without a name. Left out:
-- jobs without steps and signals, jobs whose steps take more than :most_of_one bytes, and jobs that would
-- bring the total over :most_bytes. :bytes_of_each bytes are added for each step.
WITH measured AS (
    SELECT job.id, COALESCE(job.step_bytes, 0) + job.steps * :bytes_of_each::int AS bytes
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[]) AND job.steps IS NOT NULL
),
fitting AS (
    SELECT measured.id, sum(measured.bytes) OVER (ORDER BY measured.id) AS bytes_so_far
    FROM measured
    WHERE measured.bytes <= :most_of_one::int
)
SELECT fitting.id, {step}
FROM fitting
LEFT JOIN pulse.job_steps AS step ON step.job_id = ANY(ARRAY[fitting.id])
WHERE fitting.bytes_so_far <= :most_bytes::int
ORDER BY fitting.id, step.position, step.name;
