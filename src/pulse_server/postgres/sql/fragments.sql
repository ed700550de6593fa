-- What several statements say, written once: {name} in a statement stands for the fragment of that name. A list of
-- columns that was copied would sooner or later lack one, and its answers would tell less than the others.

-- name: job
-- A job without what may be large: its payload and its history.
job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    job.ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group

-- name: rest_of_one
-- One job, named in $1, is answered in full. Of hundreds at once nobody wants the payloads.
CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history

-- name: schedule
-- A schedule without its payload, which may be large: a list of a thousand would take a gigabyte.
id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, ''::bytea AS payload, priority, max_attempts,
    metadata, paused, next_run_at, last_run_at, created_at, updated_at, declared_by

-- name: waits_in_turn
-- PENDING or RETRYING and not ready, as the index jobs_due_in_turn has it.
NOT job.ready AND job.status NOT IN ('RUNNING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED') AND job.topic >= ''

-- name: open_topics
-- Those of the topics in $1 that may be claimed from, by the switches as they are now.
wanted AS MATERIALIZED (
    SELECT asked.topic
    FROM unnest($1::text[]) AS asked (topic)
    WHERE NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = asked.topic)
)

-- name: claimable
-- What a claim has to know of a job before it takes it. A last attempt, or a job that may have been lost with its
-- worker before, is confirmed before it starts. ADR-0043
job.id, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
    octet_length(job.payload) AS bytes

-- name: those_that_fit
-- Of a claim's candidates, which are locked and come best first, those that fit into $7 bytes. The window has no order
-- of its own: it would sort them again.
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

-- name: lease_picked
-- Each job that was picked goes to the worker that its slot names.
UPDATE pulse.jobs AS job
SET status = 'RUNNING',
    ready = false,
    attempts = job.attempts + 1,
    locked_by = ($4::text[])[($3::int[])[picked.slot]],
    lease_until = clock_timestamp() + $6::interval,
    started_at = clock_timestamp(),
    -- The attempt counts once its worker has beaten it, which it does only for handlers that have started.
    -- One that cannot beat has it counted from here. ADR-0043
    delivered = NOT ($5::bool[])[($3::int[])[picked.slot]]
FROM picked
WHERE job.id = picked.id
RETURNING
    picked.slot, job.id, job.topic, job.payload, job.attempts, job.priority, job.max_attempts,
    job.metadata, job.idempotency_key,
    picked.must_confirm AND NOT job.delivered AS confirm,
    date_part('epoch', job.started_at - job.next_run_at) AS waited_seconds
