-- Schedules: their definitions. transitions/schedules.sql fires them.

-- name: create_schedule
-- A schedule whose name exists is left unchanged; the caller looks it up and returns it.
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
-- Oldest first, after ($1, $2) if given. A bound that is always present, instead of `$1 IS NULL OR
-- …`, lets the index scan start at the right place.
SELECT {schedule} FROM pulse.schedules
WHERE (created_at, id) > (COALESCE($1::timestamptz, '-infinity'), $2::uuid)
ORDER BY created_at, id
LIMIT $3;

-- name: due_schedules
-- Due schedules, longest due first, without payloads: firing copies them inside the database. Read
-- without a lock: the firing statement has its own guard.
SELECT {schedule} FROM pulse.schedules
WHERE NOT paused AND next_run_at <= now()
ORDER BY next_run_at
LIMIT $1;

-- name: queued_schedules
-- Schedules with a kept occurrence that can fire: they have no unfinished job. Read without a lock,
-- as due_schedules.
SELECT {schedule} FROM pulse.schedules AS schedule
WHERE queued_for IS NOT NULL AND NOT paused
    AND NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.schedule_id = schedule.id AND job.finished_at IS NULL)
ORDER BY queued_for
LIMIT $1;

-- name: has_fired
-- In a form that keeps the planner off the indexes of schedules: it would walk all jobs of a
-- schedule.
SELECT id FROM pulse.all_jobs WHERE id = $2::uuid AND schedule_id IS NOT DISTINCT FROM $1::uuid;

-- name: lock_free_schedule
-- Locks the schedule for a change that met a lock. No row if another session has it locked.
SELECT id FROM pulse.schedules WHERE id = $1::uuid FOR UPDATE SKIP LOCKED;

-- name: update_schedule
-- Changes the definition for future occurrences, if neither the cursor nor the definition has
-- changed since it was read. Existing jobs stay. Without the second guard, two changes of different
-- fields would undo each other.
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
-- $2 has all names that the application $1 declares. They become its schedules. Its other schedules
-- are marked as vanished and returned. With a user in $3, only schedules of that user or without a
-- user are touched. Rows are locked in order: two workers that start together must not deadlock.
-- Ids come from two indexes and go into an array: with OR, or a join, the planner walks all
-- schedules.
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
-- Moves the cursor to the next future occurrence, if it has not moved since it was read.
-- Occurrences during the pause are skipped.
UPDATE pulse.schedules SET paused = false, next_run_at = $3::timestamptz, updated_at = clock_timestamp()
WHERE id = $1::uuid AND next_run_at = $2::timestamptz
RETURNING *;

-- name: delete_schedule
-- Its jobs stay, with their lineage.
DELETE FROM pulse.schedules WHERE id = $1::uuid
RETURNING id;

-- name: scheduler_status
-- Counted from the indexes, so that no definition or payload is read. The next due schedule is the
-- first entry of an index.
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
