-- Schedules: their definitions. schedules/transitions.sql fires them.

-- name: create_schedule(id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, payload, priority, max_attempts, metadata, attempts_by_policy, max_attempts_is_default, start_within, next_run_at, declared_by, overlap, overrides)
-- A schedule whose name exists is left unchanged; the caller looks it up and returns it.
INSERT INTO pulse.schedules
    (id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, payload, priority,
     max_attempts, metadata, attempts_by_policy, max_attempts_is_default, start_within, next_run_at, declared_by, overlap,
     overrides)
VALUES (:id::uuid, :name, :kind, :run_at::timestamptz, :interval_ms::bigint, :cron_expr, :time_zone, :catch_up, :topic, :payload, :priority, :max_attempts, :metadata::jsonb,
        :attempts_by_policy, :max_attempts_is_default, :start_within::interval, :next_run_at::timestamptz, :declared_by, :overlap,
        :overrides::jsonb)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: get_schedule(id)
SELECT * FROM pulse.schedules WHERE id = :id::uuid;

-- name: find_schedule(name)
SELECT * FROM pulse.schedules WHERE name = :name;

-- name: list_schedules(after_time, after_id, most, topic)
-- Oldest first, after (:after_time, :after_id) if given, and of the topic :topic unless it is empty. A bound that is
-- always present, instead of `:after_time IS NULL OR …`, lets the index scan start at the right place.
SELECT {schedule} FROM pulse.schedules
WHERE (created_at, id) > (COALESCE(:after_time::timestamptz, '-infinity'), :after_id::uuid) AND (:topic::text IN ('', topic))
ORDER BY created_at, id
LIMIT :most;

-- name: due_schedules(most)
-- Due schedules, longest due first, without payloads: firing copies them inside the database. Read
-- without a lock: the firing statement has its own guard.
SELECT {schedule} FROM pulse.schedules
WHERE NOT paused AND next_run_at <= now()
ORDER BY next_run_at
LIMIT :most;

-- name: queued_schedules(most)
-- Schedules with a kept occurrence that can fire: they have no unfinished job. Read without a lock,
-- as due_schedules. COALESCE keeps the planner off jobs_live.
SELECT {schedule} FROM pulse.schedules AS schedule
WHERE queued_for IS NOT NULL AND NOT paused
    AND NOT EXISTS (
        SELECT FROM pulse.jobs AS job
        WHERE job.schedule_id = schedule.id AND COALESCE(job.finished_at, 'infinity') = 'infinity'
        OFFSET 0
    )
ORDER BY queued_for
LIMIT :most;

-- name: has_fired(id, job)
-- In a form that keeps the planner off the indexes of schedules: it would walk all jobs of a
-- schedule.
SELECT id FROM pulse.all_jobs WHERE id = :job::uuid AND schedule_id IS NOT DISTINCT FROM :id::uuid;

-- name: update_schedule(id, cursor, updated_at, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, payload, priority, max_attempts, metadata, attempts_by_policy, max_attempts_is_default, start_within, next_run_at, declared_by, overlap, overrides)
-- Changes the definition for future occurrences, if neither the cursor nor the definition has
-- changed since it was read. Existing jobs stay. Without the second guard, two changes of different
-- fields would undo each other.
UPDATE pulse.schedules
SET run_at = :run_at::timestamptz,
    interval_ms = :interval_ms::bigint,
    cron_expr = :cron_expr,
    time_zone = :time_zone,
    catch_up = :catch_up,
    topic = :topic,
    payload = :payload,
    priority = :priority,
    max_attempts = :max_attempts,
    metadata = :metadata::jsonb,
    attempts_by_policy = :attempts_by_policy,
    max_attempts_is_default = :max_attempts_is_default,
    start_within = :start_within::interval,
    next_run_at = :next_run_at::timestamptz,
    declared_by = :declared_by,
    overlap = :overlap,
    overrides = :overrides::jsonb,
    queued_for = CASE WHEN :overlap = 'queue' THEN queued_for END,
    updated_at = clock_timestamp()
WHERE id = :id::uuid AND next_run_at = :cursor::timestamptz AND updated_at = :updated_at::timestamptz
RETURNING *;

-- name: has_declared(application)
-- Whether an application has declared schedules. Most declare none.
SELECT id FROM pulse.schedules WHERE application = :application LIMIT 1;

-- name: declare_schedules(application, names, by_user, most)
-- :names has all names that the application :application declares. They become its schedules. Its other schedules
-- are marked as vanished and returned. With a user in :by_user, only schedules of that user or without a
-- user are touched. Rows are locked in order: two workers that start together must not deadlock.
-- Ids come from two indexes and go into an array: with OR, or a join, the planner walks all
-- schedules.
WITH concerned AS MATERIALIZED (
    SELECT id FROM pulse.schedules WHERE name = ANY (:names::text[])
    UNION ALL
    SELECT id FROM pulse.schedules WHERE application = :application
),
locked AS MATERIALIZED (
    SELECT id FROM pulse.schedules
    WHERE id = ANY (ARRAY(SELECT id FROM concerned))
        AND (:by_user::text IS NULL OR declared_by IS NULL OR declared_by = :by_user)
        AND (application IS DISTINCT FROM :application OR (vanished_at IS NULL) <> (name = ANY (:names::text[])))
    ORDER BY id
    FOR NO KEY UPDATE
),
marked AS (
    UPDATE pulse.schedules
    SET application = :application,
        vanished_at = CASE WHEN name = ANY (:names::text[]) THEN NULL ELSE clock_timestamp() END
    WHERE id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT name FROM pulse.schedules
WHERE application = :application AND name <> ALL (:names::text[])
    AND (:by_user::text IS NULL OR declared_by IS NULL OR declared_by = :by_user)
ORDER BY name
LIMIT :most;

-- name: pause_schedule(id)
UPDATE pulse.schedules SET paused = true, updated_at = clock_timestamp()
WHERE id = :id::uuid
RETURNING *;

-- name: resume_schedule(id, cursor, next_run_at)
-- Moves the cursor to the next future occurrence, if it has not moved since it was read.
-- Occurrences during the pause are skipped.
UPDATE pulse.schedules SET paused = false, next_run_at = :next_run_at::timestamptz, updated_at = clock_timestamp()
WHERE id = :id::uuid AND next_run_at = :cursor::timestamptz
RETURNING *;

-- name: delete_schedule(id)
-- Its jobs stay, with their lineage.
DELETE FROM pulse.schedules WHERE id = :id::uuid
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
