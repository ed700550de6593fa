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
