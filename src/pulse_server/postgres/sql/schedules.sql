-- Schedules: their definitions. transitions/schedules.sql fires them.

-- name: create_schedule
-- A schedule whose name exists is left as it is; the caller looks it up and answers with it.
INSERT INTO pulse.schedules
    (id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, payload, priority,
     max_attempts, metadata, attempts_by_policy, max_attempts_is_default, start_within, next_run_at, declared_by, overlap)
VALUES ($1::uuid, $2, $3, $4::timestamptz, $5::bigint, $6, $7, $8, $9, $10, $11, $12, $13::jsonb,
        $14, $15, $16::interval, $17::timestamptz, $18, $19)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: get_schedule
SELECT * FROM pulse.schedules WHERE id = $1::uuid;

-- name: find_schedule
SELECT * FROM pulse.schedules WHERE name = $1;

-- name: list_schedules
-- Oldest first, after ($1, $2) if given. A bound that is always there, instead of `$1 IS NULL OR …`, leaves the
-- index a place to start from.
SELECT {schedule} FROM pulse.schedules
WHERE (created_at, id) > (COALESCE($1::timestamptz, '-infinity'), $2::uuid)
ORDER BY created_at, id
LIMIT $3;

-- name: due_schedules
-- What is due, longest due first, without payloads: firing copies them inside the database. Read without a lock:
-- firing is guarded by itself.
SELECT {schedule} FROM pulse.schedules
WHERE NOT paused AND next_run_at <= now()
ORDER BY next_run_at
LIMIT $1;

-- name: queued_schedules
-- Those whose kept occurrence can fire: no job of theirs is unfinished. Read without a lock, as due_schedules.
SELECT {schedule} FROM pulse.schedules AS schedule
WHERE queued_for IS NOT NULL AND NOT paused
    AND NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.schedule_id = schedule.id AND job.finished_at IS NULL)
ORDER BY queued_for
LIMIT $1;

-- name: has_fired
-- In a form that keeps the planner off the indexes of schedules: it would walk the jobs of one.
SELECT id FROM pulse.all_jobs WHERE id = $2::uuid AND schedule_id IS NOT DISTINCT FROM $1::uuid;

-- name: lock_free_schedule
-- Before a change that met a lock: the schedule, if no other session has it locked.
SELECT id FROM pulse.schedules WHERE id = $1::uuid FOR UPDATE SKIP LOCKED;

-- name: update_schedule
-- Change the definition, if neither the cursor nor the definition has changed since it was read: for future
-- occurrences only, existing jobs stay. Without the second guard two changes of different fields would undo each
-- other.
UPDATE pulse.schedules
SET run_at = $4::timestamptz,
    interval_ms = $5::bigint,
    cron_expr = $6,
    time_zone = $7,
    catch_up = $8,
    topic = $9,
    payload = $10,
    priority = $11,
    max_attempts = $12,
    metadata = $13::jsonb,
    attempts_by_policy = $14,
    max_attempts_is_default = $15,
    start_within = $16::interval,
    next_run_at = $17::timestamptz,
    declared_by = $18,
    overlap = $19,
    queued_for = CASE WHEN $19 = 'queue' THEN queued_for END,
    updated_at = clock_timestamp()
WHERE id = $1::uuid AND next_run_at = $2::timestamptz AND updated_at = $3::timestamptz
RETURNING *;

-- name: has_declared
-- Whether an application has declared schedules. Most declare none.
SELECT id FROM pulse.schedules WHERE application = $1 LIMIT 1;

-- name: declare_schedules
-- The names in $2 are all that the application $1 declares. They become its own, others that it declared before are
-- marked, and returned. With a user in $3, only among the schedules of that user or of none. Rows are locked in order:
-- two workers that start together must not lock each other out. Ids come from two indexes and go into an array: with OR,
-- or a join, the planner walks all schedules.
WITH concerned AS MATERIALIZED (
    SELECT id FROM pulse.schedules WHERE name = ANY ($2::text[])
    UNION ALL
    SELECT id FROM pulse.schedules WHERE application = $1
),
locked AS MATERIALIZED (
    SELECT id FROM pulse.schedules
    WHERE id = ANY (ARRAY(SELECT id FROM concerned))
        AND ($3::text IS NULL OR declared_by IS NULL OR declared_by = $3)
        AND (application IS DISTINCT FROM $1 OR (vanished_at IS NULL) <> (name = ANY ($2::text[])))
    ORDER BY id
    FOR NO KEY UPDATE
),
marked AS (
    UPDATE pulse.schedules
    SET application = $1,
        vanished_at = CASE WHEN name = ANY ($2::text[]) THEN NULL ELSE clock_timestamp() END
    WHERE id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT name FROM pulse.schedules
WHERE application = $1 AND name <> ALL ($2::text[])
    AND ($3::text IS NULL OR declared_by IS NULL OR declared_by = $3)
ORDER BY name
LIMIT $4;

-- name: pause_schedule
UPDATE pulse.schedules SET paused = true, updated_at = clock_timestamp()
WHERE id = $1::uuid
RETURNING *;

-- name: resume_schedule
-- The cursor goes to the next occurrence to come, if it has not moved since it was read: occurrences during the pause
-- are skipped.
UPDATE pulse.schedules SET paused = false, next_run_at = $3::timestamptz, updated_at = clock_timestamp()
WHERE id = $1::uuid AND next_run_at = $2::timestamptz
RETURNING *;

-- name: delete_schedule
-- The jobs that it made stay, with their lineage.
DELETE FROM pulse.schedules WHERE id = $1::uuid
RETURNING id;

-- name: scheduler_status
-- Counted off the indexes, so that no definition and no payload is read; which is due next stands at the beginning
-- of one of them.
WITH counted AS MATERIALIZED (
    SELECT
        (SELECT count(*) FROM pulse.schedules) AS total,
        (SELECT count(*) FROM pulse.schedules WHERE NOT paused) AS active
)
SELECT
    counted.active,
    counted.total - counted.active AS paused,
    upcoming.next_run_at,
    GREATEST(clock_timestamp() - upcoming.next_run_at, interval '0') AS late
FROM counted
LEFT JOIN LATERAL (
    SELECT next_run_at FROM pulse.schedules WHERE NOT paused ORDER BY next_run_at LIMIT 1
) AS upcoming ON true;

-- name: database_now
SELECT clock_timestamp() AS now;
