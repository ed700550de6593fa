-- The statements of 0.1.0 before migration 0011, with their fragments in place: what its servers send during an upgrade.

-- name: insert_jobs
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
    submitted_at, next_run_at, ready, status)
SELECT
    new.id, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key, new.metadata::jsonb,
    new.schedule_id,
    clock_timestamp(),
    COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0')),
    COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL),
    'PENDING'
FROM unnest(
    $1::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
    $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[]
) AS new (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at, delay)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: hand_over_jobs
WITH free AS MATERIALIZED (
    SELECT asked.topic
    FROM (SELECT DISTINCT topic FROM unnest($2::text[]) AS topic) AS asked
    WHERE NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = asked.topic)
      AND NOT EXISTS (SELECT FROM pulse.jobs AS waiting WHERE waiting.topic = asked.topic AND waiting.ready)
)
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
    submitted_at, next_run_at, ready, status, attempts, locked_by, lease_until, started_at, delivered)
SELECT
    new.id, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key, new.metadata::jsonb,
    new.schedule_id,
    clock_timestamp(),
    COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0')),
    NOT (free.topic IS NOT NULL) AND COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL),
    CASE WHEN (free.topic IS NOT NULL) THEN 'RUNNING' ELSE 'PENDING' END,
    CASE WHEN (free.topic IS NOT NULL) THEN 1 ELSE 0 END,
    CASE WHEN (free.topic IS NOT NULL) THEN new.worker_id END,
    CASE WHEN (free.topic IS NOT NULL) THEN clock_timestamp() + $13::interval END,
    CASE WHEN (free.topic IS NOT NULL) THEN clock_timestamp() END,
    (free.topic IS NOT NULL) AND NOT new.confirms
FROM unnest(
    $1::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
    $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[], $11::text[], $12::bool[]
) AS new (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at, delay,
          worker_id, confirms)
LEFT JOIN free
    ON free.topic = new.topic
   AND new.worker_id IS NOT NULL AND new.run_at IS NULL AND new.delay IS NULL
ON CONFLICT DO NOTHING
RETURNING id, locked_by IS NOT NULL AS is_taken;

-- name: claim_batch
WITH candidate AS MATERIALIZED (
    SELECT job.id, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
    octet_length(job.payload) AS bytes
    FROM pulse.jobs AS job
    WHERE job.topic = $1::text AND job.ready
      AND NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = $1::text)
    ORDER BY job.priority DESC, job.submitted_at, job.id
    LIMIT $2
    FOR UPDATE OF job SKIP LOCKED
),
ranked AS (
    SELECT
        candidate.id,
        candidate.must_confirm,
        row_number() OVER line::int AS slot,
        sum(candidate.bytes) OVER line - candidate.bytes AS bytes_before
    FROM candidate
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
picked AS MATERIALIZED (
    SELECT ranked.id, ranked.slot, ranked.must_confirm
    FROM ranked
    WHERE ranked.slot = 1 OR ranked.bytes_before < $7::bigint
)
UPDATE pulse.jobs AS job
SET status = 'RUNNING',
    ready = false,
    attempts = job.attempts + 1,
    locked_by = ($4::text[])[($3::int[])[picked.slot]],
    lease_until = clock_timestamp() + $6::interval,
    started_at = clock_timestamp(),
    delivered = NOT ($5::bool[])[($3::int[])[picked.slot]]
FROM picked
WHERE job.id = picked.id
RETURNING
    picked.slot, job.id, job.topic, job.payload, job.attempts, job.priority, job.max_attempts,
    job.metadata, job.idempotency_key,
    picked.must_confirm AND NOT job.delivered AS confirm,
    date_part('epoch', job.started_at - job.next_run_at) AS waited_seconds;

-- name: claim_across_topics
WITH wanted AS MATERIALIZED (
    SELECT asked.topic
    FROM unnest($1::text[]) AS asked (topic)
    WHERE NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = asked.topic)
),
first AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = wanted.topic AND job.ready
        ORDER BY job.priority DESC, job.submitted_at, job.id
        LIMIT $9
    ) AS job
    ORDER BY job.priority DESC, job.submitted_at, job.id
    LIMIT $8
),
deep AS MATERIALIZED (
    SELECT best.topic
    FROM first AS best
    GROUP BY best.topic
    HAVING count(*) >= $9
),
share AS MATERIALIZED (
    SELECT GREATEST(1, LEAST(64, 2 * $8 / NULLIF(count(*), 0))) AS of_each FROM deep
),
further AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM deep AS wanted
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = wanted.topic AND job.ready
        ORDER BY job.priority DESC, job.submitted_at, job.id
        OFFSET $9
        LIMIT (SELECT share.of_each FROM share)
    ) AS job
),
deepest AS MATERIALIZED (
    SELECT best.topic
    FROM (
        SELECT * FROM (SELECT * FROM first UNION ALL SELECT * FROM further) AS job
        WHERE EXISTS (SELECT FROM deep)
        ORDER BY job.priority DESC, job.submitted_at, job.id
        LIMIT $8
    ) AS best
    GROUP BY best.topic
    HAVING count(*) >= $9 + (SELECT share.of_each FROM share)
),
furthest AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM deepest AS wanted
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = wanted.topic AND job.ready
        ORDER BY job.priority DESC, job.submitted_at, job.id
        OFFSET $9 + (SELECT share.of_each FROM share)
        LIMIT $8
    ) AS job
),
best AS MATERIALIZED (
    SELECT job.id
    FROM (SELECT * FROM first UNION ALL SELECT * FROM further UNION ALL SELECT * FROM furthest) AS job
    ORDER BY job.priority DESC, job.submitted_at, job.id
    LIMIT $8
),
candidate AS MATERIALIZED (
    SELECT locked.*
    FROM best
    CROSS JOIN LATERAL (
        SELECT job.id, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
    octet_length(job.payload) AS bytes
        FROM pulse.jobs AS job
        WHERE job.id = best.id AND job.ready::int = 1
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LIMIT $2
),
ranked AS (
    SELECT
        candidate.id,
        candidate.must_confirm,
        row_number() OVER line::int AS slot,
        sum(candidate.bytes) OVER line - candidate.bytes AS bytes_before
    FROM candidate
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
picked AS MATERIALIZED (
    SELECT ranked.id, ranked.slot, ranked.must_confirm
    FROM ranked
    WHERE ranked.slot = 1 OR ranked.bytes_before < $7::bigint
),
leased AS (
    UPDATE pulse.jobs AS job
SET status = 'RUNNING',
    ready = false,
    attempts = job.attempts + 1,
    locked_by = ($4::text[])[($3::int[])[picked.slot]],
    lease_until = clock_timestamp() + $6::interval,
    started_at = clock_timestamp(),
    delivered = NOT ($5::bool[])[($3::int[])[picked.slot]]
FROM picked
WHERE job.id = picked.id
RETURNING
    picked.slot, job.id, job.topic, job.payload, job.attempts, job.priority, job.max_attempts,
    job.metadata, job.idempotency_key,
    picked.must_confirm AND NOT job.delivered AS confirm,
    date_part('epoch', job.started_at - job.next_run_at) AS waited_seconds
)
SELECT leased.*, (SELECT count(*) FROM best) AS candidates
FROM (SELECT) AS always
LEFT JOIN leased ON true;

-- name: complete_jobs
UPDATE pulse.jobs AS job
SET status = 'COMPLETED',
    finished_at = clock_timestamp(),
    finished_by = job.locked_by,
    locked_by = NULL,
    lease_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::int[]) WITH ORDINALITY AS claim (id, worker_id, attempt, place)
WHERE job.id = claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)
RETURNING claim.place, job.topic, date_part('epoch', job.finished_at - job.started_at) AS ran_seconds;

-- name: fail_jobs
UPDATE pulse.jobs AS job
SET status = CASE WHEN (claim.discard OR job.attempts >= job.max_attempts) THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
    finished_at = CASE WHEN (claim.discard OR job.attempts >= job.max_attempts) THEN clock_timestamp() END,
    finished_by = CASE WHEN (claim.discard OR job.attempts >= job.max_attempts) THEN job.locked_by END,
    next_run_at = clock_timestamp() + COALESCE(claim.retry_after, LEAST(job.attempts, 10000) ^ 2 * interval '1 second'),
    last_error = claim.error,
    error_group = CASE WHEN (claim.discard OR job.attempts >= job.max_attempts) THEN claim.error_group ELSE '' END,
    history = pulse.append_attempt(
        job.history, job.attempts, job.locked_by, job.started_at,
        CASE WHEN claim.discard THEN 'discarded' ELSE 'failed' END, claim.error),
    locked_by = NULL,
    lease_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::interval[], $6::bool[], $7::text[])
    AS claim (id, worker_id, attempt, error, retry_after, discard, error_group)
WHERE job.id = claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)
RETURNING claim.id, claim.worker_id, claim.attempt, job.topic,
    date_part('epoch', clock_timestamp() - job.started_at) AS ran_seconds, job.status;

-- name: extend_leases
UPDATE pulse.jobs AS job
SET lease_until = clock_timestamp() + $4::interval,
    delivered = true
FROM unnest($1::uuid[], $2::text[], $3::int[]) AS claim (id, worker_id, attempt)
WHERE job.id = claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)
RETURNING claim.id, claim.worker_id, claim.attempt;

-- name: release_jobs
UPDATE pulse.jobs AS job
SET status = 'RETRYING',
    ready = true,
    attempts = job.attempts - 1,
    started_at = CASE WHEN job.attempts > 1 OR job.history IS NOT NULL THEN job.started_at END,
    next_run_at = clock_timestamp(),
    locked_by = NULL,
    lease_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::int[]) AS claim (id, worker_id, attempt)
WHERE job.id = claim.id
  AND job.locked_by = claim.worker_id
  AND job.attempts = claim.attempt
  AND ($4::interval IS NULL OR (NOT job.delivered AND job.started_at < now() - $4::interval))
RETURNING job.id, job.topic;

-- name: reap_expired
WITH expired AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts, job.delivered
    FROM pulse.jobs AS job
    WHERE job.status = 'RUNNING' AND job.lease_until < LEAST(now(), $2::timestamptz)
      AND job.locked_by NOT IN (
          SELECT spared.worker_id
          FROM pulse.spared_workers AS spared
          WHERE spared.spared_until > LEAST(now(), $2::timestamptz)
          UNION ALL
          SELECT worker ->> 'worker_id'
          FROM pulse.servers AS server
          CROSS JOIN LATERAL jsonb_array_elements(server.workers) AS worker
          WHERE server.silent_from < now()
            AND server.workers_spared_until > LEAST(now(), $2::timestamptz)
      )
    ORDER BY job.lease_until
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE pulse.jobs AS job
SET status = CASE WHEN (job.delivered AND job.attempts >= job.max_attempts) THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
    finished_at = CASE WHEN (job.delivered AND job.attempts >= job.max_attempts) THEN clock_timestamp() END,
    finished_by = CASE WHEN (job.delivered AND job.attempts >= job.max_attempts) THEN job.locked_by END,
    attempts = CASE WHEN job.delivered THEN job.attempts ELSE job.attempts - 1 END,
    next_run_at = clock_timestamp() + LEAST(job.attempts, 10000) ^ 2 * interval '1 second',
    last_error = 'worker lease expired',
    error_group = CASE WHEN (job.delivered AND job.attempts >= job.max_attempts) THEN $3::text ELSE '' END,
    history = pulse.append_attempt(
        job.history, job.attempts, job.locked_by, job.started_at, 'lease_expired', 'worker lease expired'),
    locked_by = NULL,
    lease_until = NULL
FROM expired
WHERE job.id = expired.id
RETURNING job.id, job.topic, job.status, expired.locked_by, expired.attempts, expired.delivered;

-- name: promote_due
WITH due AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE NOT job.ready AND job.status IN ('PENDING', 'RETRYING') AND job.next_run_at <= now()
    ORDER BY job.next_run_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
promoted AS (
    UPDATE pulse.jobs AS job
    SET ready = true
    FROM due
    WHERE job.id = due.id
    RETURNING job.topic
)
SELECT promoted.topic, count(*) AS promoted, NULL::float8 AS next_due_in_seconds
FROM promoted
GROUP BY promoted.topic
UNION ALL
SELECT NULL, 0, (
    SELECT EXTRACT(epoch FROM job.next_run_at - clock_timestamp())::float8
    FROM pulse.jobs AS job
    WHERE NOT job.ready AND job.status IN ('PENDING', 'RETRYING') AND job.next_run_at > now()
    ORDER BY job.next_run_at
    LIMIT 1
);

-- name: promote_in_turn
WITH RECURSIVE waiting AS (
    (
        SELECT job.topic, job.next_run_at
        FROM pulse.jobs AS job
        WHERE NOT job.ready AND job.status NOT IN ('RUNNING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED') AND job.topic >= '' AND job.topic > $3::text
        ORDER BY job.topic, job.next_run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.topic, following.next_run_at
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT job.topic, job.next_run_at
        FROM pulse.jobs AS job
        WHERE NOT job.ready AND job.status NOT IN ('RUNNING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED') AND job.topic >= '' AND job.topic > waiting.topic
        ORDER BY job.topic, job.next_run_at
        LIMIT 1
    ) AS following
),
looked_at AS MATERIALIZED (
    SELECT waiting.topic, waiting.next_run_at FROM waiting LIMIT $4
),
due AS MATERIALIZED (
    SELECT candidate.id, looked_at.topic
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM pulse.jobs AS job
        WHERE NOT job.ready AND job.status NOT IN ('RUNNING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED') AND job.topic >= ''
          AND job.topic = looked_at.topic AND job.next_run_at <= now()
        ORDER BY job.next_run_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS candidate
    WHERE looked_at.next_run_at <= now()
    LIMIT $1
),
promoted AS (
    UPDATE pulse.jobs AS job
    SET ready = true
    FROM due
    WHERE job.id = due.id
    RETURNING job.topic
)
SELECT promoted.topic, count(*) AS promoted, NULL AS last_topic
FROM promoted
GROUP BY promoted.topic
UNION ALL
SELECT NULL, 0, CASE
    WHEN (SELECT count(*) FROM due) >= $1 THEN (SELECT max(due.topic) FROM due)
    WHEN (SELECT count(*) FROM looked_at) >= $4 THEN (SELECT max(looked_at.topic) FROM looked_at)
    ELSE ''
END;

-- name: cancel_jobs
WITH target AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
      AND job.status = ANY($3::text[])
      AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    ORDER BY job.id
    FOR NO KEY UPDATE
)
UPDATE pulse.jobs AS job
SET status = 'CANCELED',
    ready = false,
    finished_at = clock_timestamp(),
    history = CASE
        WHEN job.locked_by IS NULL THEN job.history
        ELSE pulse.append_attempt(
            job.history, job.attempts, job.locked_by, job.started_at, 'canceled', $2::text)
    END,
    last_error = COALESCE(NULLIF($2::text, ''), job.last_error),
    locked_by = NULL,
    lease_until = NULL
FROM target
WHERE job.id = target.id
RETURNING job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    job.ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group, CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history,
    target.locked_by AS ended_worker_id, target.attempts AS ended_attempt;

-- name: retry_jobs
UPDATE pulse.jobs AS job
SET status = 'PENDING',
    ready = CASE
        WHEN job.status = 'CANCELED' AND job.history -> -1 ->> 'outcome' = 'canceled'
        THEN job.finished_at + interval '2 seconds' <= now()
        ELSE true
    END,
    next_run_at = CASE
        WHEN job.status = 'CANCELED' AND job.history -> -1 ->> 'outcome' = 'canceled'
        THEN GREATEST(clock_timestamp(), job.finished_at + interval '2 seconds')
        ELSE clock_timestamp()
    END,
    max_attempts = GREATEST(job.max_attempts, job.attempts + $2::int),
    finished_at = NULL,
    finished_by = NULL,
    error_group = ''
WHERE job.id = ANY($1::uuid[])
  AND job.status = ANY($3::text[])
  AND job.status NOT IN ('PENDING', 'RETRYING', 'RUNNING', 'COMPLETED')
RETURNING job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    job.ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group, CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history;

-- name: prioritize_jobs
WITH target AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
      AND job.status = ANY($3::text[])
      AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    ORDER BY job.id
    FOR NO KEY UPDATE
)
UPDATE pulse.jobs AS job
SET priority = $2::int
FROM target
WHERE job.id = target.id
RETURNING job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    job.ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group, CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history;

-- name: fire_now
INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, metadata, schedule_id, submitted_at, next_run_at, ready, status)
SELECT $2::uuid, topic, payload, priority, max_attempts, metadata, id, clock_timestamp(), clock_timestamp(), true, 'PENDING'
FROM pulse.schedules
WHERE id = $1::uuid
ON CONFLICT DO NOTHING
RETURNING id, topic;

-- name: topics_with_ready_jobs
SELECT wanted.topic
FROM unnest(string_to_array($1::text, chr(10))) AS wanted (topic)
CROSS JOIN LATERAL (
    SELECT FROM pulse.jobs AS job WHERE job.topic = wanted.topic AND job.ready LIMIT 1
) AS probe;

-- name: look_up_jobs
SELECT id, topic, status, priority, attempts, max_attempts, submitted_at, next_run_at, ready, delivered,
       locked_by, lease_until, started_at, finished_at, finished_by, history
FROM pulse.jobs
WHERE id = ANY($1::uuid[])
  AND (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;
