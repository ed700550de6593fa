-- Every change of a job's state. They stand together because they are one argument: each statement's WHERE
-- clause is the rule, zero rows means that the transition was not legal, and no statement reads first and
-- writes later. docs/job-lifecycle.md draws the machine that they make.
--
-- Three habits keep them fast at any table size (docs/adr/0007):
--   * Fences compare locked_by and attempts, never the status. A CHECK ties locked_by to RUNNING, so this is
--     the same rule, but one that only the primary key can serve.
--   * Durations are told by date_part, a float at once: EXTRACT would make a numeric first.
--   * Time compared with an index is now(), the start of the statement by the database's clock; time that is
--     stored is clock_timestamp(). A volatile function could not be an index condition.
--
-- {job} and the like stand in fragments.sql.
--
-- complete_jobs, fail_jobs, extend_leases, release_jobs and what operators do wait for a locked row for a moment only
-- (lock_timeout). One that met a lock is sent again behind lock_free_jobs (locks.sql), for the rows that are free. ADR-0042

-- name: insert_jobs
-- From nothing to PENDING, ready at once unless it is to start later. A row whose id or (topic, key) exists
-- is left out; the caller looks it up and answers with what is there.
INSERT INTO pulse.jobs
    (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
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
-- insert_jobs and claim_batch in one, for jobs that start at once and for which a worker has a free place: from
-- nothing to RUNNING, under that worker's lease. What stands before a claim stands here too: the switches are read
-- in this statement, and a job that finds others waiting in its topic goes PENDING, behind them. So do those without
-- a taker. Each topic is looked up once, however many jobs it gets: behind a transaction that is held open, the head of
-- the claim index is a long walk over dead entries. ADR-0030
--   $1-$10 as insert_jobs   $11 who takes the job, or null   $12 whether that worker confirms   $13 lease
WITH free AS MATERIALIZED (
    SELECT asked.topic
    FROM (SELECT DISTINCT topic FROM unnest($2::text[]) AS topic) AS asked
    WHERE NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = asked.topic)
      AND NOT EXISTS (SELECT FROM pulse.jobs AS waiting WHERE waiting.topic = asked.topic AND waiting.ready)
)
INSERT INTO pulse.jobs
    (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
     submitted_at, next_run_at, ready, status, attempts, locked_by, lease_until, started_at, delivered)
SELECT
    new.id, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key, new.metadata::jsonb,
    new.schedule_id,
    clock_timestamp(),
    COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0')),
    free.topic IS NULL AND COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL),
    CASE WHEN free.topic IS NULL THEN 'PENDING' ELSE 'RUNNING' END,
    CASE WHEN free.topic IS NULL THEN 0 ELSE 1 END,
    CASE WHEN free.topic IS NOT NULL THEN new.worker_id END,
    CASE WHEN free.topic IS NOT NULL THEN clock_timestamp() + $13::interval END,
    CASE WHEN free.topic IS NOT NULL THEN clock_timestamp() END,
    free.topic IS NOT NULL AND NOT new.confirms
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
-- From PENDING or RETRYING, once ready, to RUNNING: the best jobs of one topic, each leased to the worker that its
-- slot names. Rows locked by another claimer are skipped, so concurrent claims are disjoint. Nothing is taken while
-- dispatch, or the topic, is paused: the switches are read here, in the same statement, and not only from a
-- replica's memory. A batch ends early once its payloads have $7 bytes; octet_length reads the length off the row,
-- not the payload. ADR-0038
--   $1 topic   $2 limit   $3 slot -> index into $4   $4 worker ids   $5 who of them confirms   $6 lease   $7 bytes
WITH candidate AS MATERIALIZED (
    SELECT {claimable}
    FROM pulse.jobs AS job
    WHERE job.topic = $1::text AND job.ready
      AND NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = $1::text)
    ORDER BY job.priority DESC, job.submitted_at, job.id
    LIMIT $2
    FOR UPDATE OF job SKIP LOCKED
),
{those_that_fit}
{lease_picked};

-- name: claim_across_topics
-- claim_batch for workers of several topics, at the cost of a batch and not of a batch for each topic. Finds the best
-- $8 jobs over all topics without a lock, then locks as many of them as there are slots. There are more than slots, so
-- that a claimer who finds the best ones locked takes the next. Answers with how many there were, too, in a row without
-- a job if none was left. ADR-0045
--   The first few of each topic ($9) are nearly always enough. A topic that has all of these among the best may have
--   more that belong there: it is asked for further ones, and if that is not enough for all that it could have.
--   $1 topics   $2-$7 as claim_batch   $8 jobs to choose from   $9 of each topic at first
WITH {open_topics},
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
    -- Sorted once: the sorts below find it in order, which costs them next to nothing.
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
    SELECT deep.topic, job.*
    FROM deep
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = deep.topic AND job.ready
        ORDER BY job.priority DESC, job.submitted_at, job.id
        OFFSET $9
        LIMIT (SELECT share.of_each FROM share)
    ) AS job
),
deepest AS MATERIALIZED (
    SELECT best.topic
    FROM (
        SELECT * FROM (SELECT * FROM first UNION ALL SELECT * FROM further) AS found
        WHERE EXISTS (SELECT FROM deep)
        ORDER BY priority DESC, submitted_at, id
        LIMIT $8
    ) AS best
    GROUP BY best.topic
    HAVING count(*) >= $9 + (SELECT share.of_each FROM share)
),
furthest AS MATERIALIZED (
    SELECT deepest.topic, job.*
    FROM deepest
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = deepest.topic AND job.ready
        ORDER BY job.priority DESC, job.submitted_at, job.id
        OFFSET $9 + (SELECT share.of_each FROM share)
        LIMIT $8
    ) AS job
),
best AS MATERIALIZED (
    SELECT found.id
    FROM (SELECT * FROM first UNION ALL SELECT * FROM further UNION ALL SELECT * FROM furthest) AS found
    ORDER BY found.priority DESC, found.submitted_at, found.id
    LIMIT $8
),
candidate AS MATERIALIZED (
    SELECT locked.*
    FROM best
    CROSS JOIN LATERAL (
        SELECT {claimable}
        FROM pulse.jobs AS job
        -- Still ready, in words that keep the planner from walking the claim index for it.
        WHERE job.id = best.id AND job.ready::int = 1
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LIMIT $2
),
{those_that_fit},
leased AS (
    {lease_picked}
)
SELECT leased.*, (SELECT count(*) FROM best) AS candidates
FROM (SELECT) AS always
LEFT JOIN leased ON true;

-- name: complete_jobs
-- From RUNNING to COMPLETED, if the claim still holds. A claim without a worker or an attempt comes from a
-- caller of the original contract and is fenced by what it does carry. last_error stays: it tells what
-- happened to the attempts before. Returns the claims that counted, by their place: two may name the same job.
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
-- From RUNNING to RETRYING, or to DEAD_LETTERED when no attempt is left or the worker says that none would
-- help; if the claim still holds. The next attempt is due after attempts² seconds unless the worker named
-- another wait. A redrive goes on counting, so the square is bounded: past the range of a number, one such row would
-- fail every report that shares its statement, and every reap.
UPDATE pulse.jobs AS job
SET status = CASE
        WHEN failure.discard OR job.attempts >= job.max_attempts THEN 'DEAD_LETTERED'
        ELSE 'RETRYING'
    END,
    finished_at = CASE WHEN failure.discard OR job.attempts >= job.max_attempts THEN clock_timestamp() END,
    finished_by = CASE WHEN failure.discard OR job.attempts >= job.max_attempts THEN job.locked_by END,
    next_run_at = clock_timestamp()
        + COALESCE(failure.retry_after, LEAST(job.attempts, 10000) ^ 2 * interval '1 second'),
    last_error = failure.error,
    error_group = CASE
        WHEN failure.discard OR job.attempts >= job.max_attempts THEN failure.error_group ELSE ''
    END,
    history = pulse.append_attempt(
        job.history, job.attempts, job.locked_by, job.started_at,
        CASE WHEN failure.discard THEN 'discarded' ELSE 'failed' END, failure.error),
    locked_by = NULL,
    lease_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::interval[], $6::bool[], $7::text[])
    AS failure (id, worker_id, attempt, error, retry_after, discard, error_group)
WHERE job.id = failure.id
  AND job.locked_by = COALESCE(failure.worker_id, job.locked_by)
  AND job.attempts = COALESCE(failure.attempt, job.attempts)
RETURNING failure.id, failure.worker_id, failure.attempt, job.topic,
    date_part('epoch', clock_timestamp() - job.started_at) AS ran_seconds, job.status;

-- name: extend_leases
-- RUNNING stays RUNNING, for another lease, if the claim still holds. A claim that is not returned is lost:
-- its worker must stop. Workers beat a job from its start on, so from here on the attempt counts.
UPDATE pulse.jobs AS job
SET lease_until = clock_timestamp() + $4::interval,
    delivered = true
FROM unnest($1::uuid[], $2::text[], $3::int[]) AS claim (id, worker_id, attempt)
WHERE job.id = claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)
RETURNING claim.id, claim.worker_id, claim.attempt;

-- name: release_jobs
-- From RUNNING back to the head of the line, if the claim still holds: the job was never delivered, or its
-- worker has not started it. The attempt is given back, and a job that was never tried looks so again: its
-- next claim needs no confirmation. One that was lost with a worker, which its history shows, keeps its start, or it
-- could kill a worker for free after each release. RETRYING, since RUNNING leads to no other waiting state.
-- With $4 only what was claimed longer ago than that and was never beaten: its worker has not read it. ADR-0043
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
-- From RUNNING, once the lease has lapsed, through the branch of a failure: RETRYING, or DEAD_LETTERED when
-- no attempt is left. An attempt that never started, by what is known, is given back instead: it may wait in
-- the window of a worker that died, or have been lost on its way there. A row that is being beaten at this
-- moment is locked, and skipped. So are the jobs of a worker that is spared, because its beats arrive and cannot
-- be stored, or because the server to which it was connected has fallen silent without leaving, and it may be on
-- its way to another. ADR-0042
-- $2 bounds the reach of a statement that a frozen database runs late: leases that were alive when it
-- was sent are not its business. ADR-0010
WITH lapsed AS MATERIALIZED (
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
SET status = CASE
        WHEN job.delivered AND job.attempts >= job.max_attempts THEN 'DEAD_LETTERED'
        ELSE 'RETRYING'
    END,
    finished_at = CASE WHEN job.delivered AND job.attempts >= job.max_attempts THEN clock_timestamp() END,
    finished_by = CASE WHEN job.delivered AND job.attempts >= job.max_attempts THEN job.locked_by END,
    attempts = CASE WHEN job.delivered THEN job.attempts ELSE job.attempts - 1 END,
    next_run_at = clock_timestamp() + LEAST(job.attempts, 10000) ^ 2 * interval '1 second',
    last_error = 'worker lease expired',
    error_group = CASE WHEN job.delivered AND job.attempts >= job.max_attempts THEN $3::text ELSE '' END,
    history = pulse.append_attempt(
        job.history, job.attempts, job.locked_by, job.started_at, 'lease_expired', 'worker lease expired'),
    locked_by = NULL,
    lease_until = NULL
FROM lapsed
WHERE job.id = lapsed.id
RETURNING job.id, job.topic, job.status, lapsed.locked_by, lapsed.attempts, lapsed.delivered;

-- name: promote_due
-- PENDING or RETRYING becomes ready once its time has come; the status stays. Answers with the topics that
-- have something new, and in a last row with the seconds until the next job is due.
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
-- The same as promote_due, for a few jobs of each topic, while more is due than a batch takes: by age alone, one topic
-- with 300,000 due jobs would have all others wait for it. The walk goes from topic to topic, one index probe for each,
-- looks at $4 of them and takes $1 jobs at the most; a last row has the topic after which the next one goes on. ADR-0047
-- What waits is said as jobs_due_in_turn says it: said as jobs_due does, the planner would walk the jobs of all topics.
--   $1 jobs in all   $2 jobs of each topic   $3 the topic after which to start   $4 topics to look at
WITH RECURSIVE waiting AS (
    (
        SELECT job.topic, job.next_run_at
        FROM pulse.jobs AS job
        WHERE {waits_in_turn} AND job.topic > $3::text
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
    SELECT waiting.topic, waiting.next_run_at FROM waiting LIMIT $4
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
-- From PENDING, RETRYING or RUNNING, as far as $3 names them, to CANCELED. A running job loses its lease here and
-- now: whatever its worker still says is refused by the fences, and the worker is told to stop.
-- Written so that no partial index can serve the guard: for hundreds of ids the planner might walk one.
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
RETURNING {job}, {rest_of_one},
    target.locked_by AS ended_worker_id, target.attempts AS ended_attempt;

-- name: retry_jobs
-- From DEAD_LETTERED or CANCELED, as far as $3 names them, to PENDING, ready at once, with at least $2 attempts
-- ahead. The count of attempts goes on: it is the fence's token, and starting it over would let a worker that still
-- runs the old first attempt report for the new one. The guard is written as that of cancel_jobs.
-- A job that was canceled in a worker, which its history shows, is due 2 s after the cancel at the earliest: by then
-- that worker no longer starts it, whether it has heard of the cancel or not. ADR-0041
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
RETURNING {job}, {rest_of_one};

-- name: prioritize_jobs
-- PENDING, RETRYING or RUNNING, as far as $3 names them, stays so with another priority. One that runs keeps running:
-- its priority counts from its next claim on. The guard is written as that of cancel_jobs, and the rows are locked in
-- the order in which reports lock theirs.
WITH target AS MATERIALIZED (
    SELECT job.id
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
RETURNING {job}, {rest_of_one};

-- name: delete_jobs
-- From COMPLETED, DEAD_LETTERED or CANCELED, as far as $2 names them, to nothing: id and idempotency key are free
-- again. The rule is checked on what is locked, so that a redrive which comes first wins.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
      AND job.status = ANY($2::text[])
      AND job.status NOT IN ('PENDING', 'RETRYING', 'RUNNING')
    ORDER BY job.id
    FOR UPDATE
)
DELETE FROM pulse.jobs AS job
USING target
WHERE job.id = target.id
RETURNING job.id, job.status;
