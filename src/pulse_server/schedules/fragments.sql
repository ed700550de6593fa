-- Fragments of schedules and their fires. jobs.sql explains fragments.

-- name: schedule
-- A schedule without its payload, which may be large: a list of a thousand schedules would take a
-- gigabyte.
id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, ''::bytea AS payload, priority, max_attempts,
    attempts_by_policy, max_attempts_is_default, metadata, paused, next_run_at, last_run_at, created_at, updated_at,
    declared_by, application, vanished_at, start_within, overlap, queued_for, overrides #- '{payload,declared}' AS overrides

-- name: fire_columns
-- The columns that a fire writes, except the job's id and its start_by: {fire}.
topic, payload, priority, max_attempts, metadata, schedule_id, submitted_at, next_run_at, queued, status

-- name: fire
-- A job as its schedule defines it, ready at once.
topic, payload, priority, {attempts_of_fire}, metadata, id, clock_timestamp(), clock_timestamp(), true, 'PENDING'

-- name: id_of_fire
-- The id for the job of the fire `asked`, given the holder of its proper id.
holder.is_own,
        CASE WHEN NOT holder.is_own THEN gen_random_uuid() ELSE asked.job_id END AS job_id,
        CASE WHEN NOT holder.is_own THEN asked.job_id END AS taken_id

-- name: holder_of_fire
LEFT JOIN LATERAL (
        SELECT job.schedule_id IS NOT DISTINCT FROM schedule.id AS is_own
        FROM pulse.all_jobs AS job
        WHERE job.id = ANY(ARRAY[asked.job_id])
    ) AS holder ON true

-- name: fired_by_step
-- The jobs of the fires in `step`, and the ids that completed_among took back.
fired AS (
    INSERT INTO pulse.jobs (id, {fire_columns}, start_by)
    SELECT job_id, {fire}, step.occurrence + step.start_within
    FROM step
    WHERE job_id IS NOT NULL AND is_own IS NOT TRUE AND NOT is_held
    ON CONFLICT DO NOTHING
    RETURNING id
),
taken_back AS MATERIALIZED (
    SELECT unnest(pulse.completed_among_v1(array_agg(step.job_id), NULL, min(step.occurrence) - interval '1 hour')) AS id
    FROM step
    WHERE {step_is_fired}
)

-- name: step_is_fired
-- The statement stored the job of the fire in `step`. A hashed subplan: a join could only be a
-- nested loop, which compares each fire with each.
(step.job_id IN (SELECT fired.id FROM fired)) IS TRUE

-- name: step_stays_fired
-- Nor was the job taken back: it had not completed before.
step.job_id NOT IN (SELECT taken_back.id FROM taken_back)

-- name: attempts_of_fire
-- The attempts of a job that the schedule `step` makes: the schedule's own number, or the number in
-- the topic's settings, or the stored default, which comes from the handler or the settings.
CASE WHEN step.attempts_by_policy
        THEN COALESCE((
            SELECT rules.max_attempts FROM pulse.topic_rules AS rules WHERE rules.topic = step.topic
        ), step.max_attempts)
        ELSE step.max_attempts
    END
