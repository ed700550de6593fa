-- Fires: a schedule makes a job, which is then an ordinary job. jobs/transitions/jobs.sql has the rules for all
-- transitions.

-- name: fire_schedules(schedules, occurrences, following, jobs)
-- From nothing to PENDING, ready, and the cursor advances: one step of each unpaused schedule whose
-- cursor still stands at the occurrence. Inserts the occurrence's job, then advances the cursor, or
-- deletes the schedule after its last occurrence. It is one statement: the job never exists with
-- the old cursor. The job's id is derived from the occurrence, so a cursor that was set back cannot
-- make a second job. If a job of another origin has that id, the fire takes a random id. If that
-- job was committed after this statement began, nothing is inserted and the cursor stays: the next
-- tick sees the job. ADR-0018
-- start_within counts from the occurrence: the job of a late fire may never start.
-- A schedule with an overlap other than allow makes no job while it has an unfinished one. This is
-- read behind the lock on the schedule, with a new snapshot: every fire holds that lock until it
-- commits. With `queue`, the first blocked occurrence is kept for fire_queued. ADR-0066
-- `+ interval '0'` and `::int` keep the planner off schedules_due, and COALESCE in fire_queued keeps
-- it off schedules_queued: where many schedules share a moment, as hourly ones do, each look-up
-- would walk them all.
-- :following has the next occurrences; NULL: none.
-- :jobs has the ids; NULL: skip the occurrence.
WITH locked AS MATERIALIZED (
    SELECT schedule.*, asked.following, asked.occurrence, {id_of_fire}
    FROM unnest(:schedules::uuid[], :occurrences::timestamptz[], :following::timestamptz[], :jobs::uuid[])
        AS asked (schedule_id, occurrence, following, job_id)
    JOIN pulse.schedules AS schedule
        ON schedule.id = ANY(ARRAY[asked.schedule_id])
       AND schedule.next_run_at + interval '0' = asked.occurrence
       AND schedule.paused::int = 0
    {holder_of_fire}
    ORDER BY asked.schedule_id
    FOR UPDATE OF schedule SKIP LOCKED
),
step AS MATERIALIZED (
    SELECT locked.*, CASE
        WHEN locked.overlap <> 'allow' AND locked.following IS NOT NULL AND locked.job_id IS NOT NULL
             AND locked.is_own IS NOT TRUE
        THEN pulse.schedule_is_busy_v1(locked.id)
        ELSE false
    END AS is_held
    FROM locked
),
{fired_by_step},
done AS MATERIALIZED (
    SELECT step.*, {step_is_fired} AS is_new
    FROM step
    WHERE step.job_id IS NULL OR step.is_own OR step.is_held OR ({step_is_fired} AND {step_stays_fired})
),
advanced AS (
    UPDATE pulse.schedules AS schedule
    SET next_run_at = done.following,
        last_run_at = CASE
            WHEN done.job_id IS NULL OR done.is_held THEN schedule.last_run_at
            ELSE done.occurrence
        END,
        queued_for = CASE
            WHEN done.is_held AND done.overlap = 'queue' THEN COALESCE(schedule.queued_for, done.occurrence)
            ELSE schedule.queued_for
        END
    FROM done
    WHERE schedule.id = ANY(ARRAY[done.id]) AND done.following IS NOT NULL
),
ended AS (
    DELETE FROM pulse.schedules AS schedule
    USING done
    WHERE schedule.id = ANY(ARRAY[done.id]) AND done.following IS NULL
)
SELECT done.id AS schedule_id, done.topic, done.job_id, done.taken_id, done.occurrence, done.is_new, done.is_held
FROM done;

-- name: fire_queued(schedules, occurrences, jobs)
-- fire_schedules for a kept occurrence, once the schedule has no unfinished job. The cursor stays.
WITH locked AS MATERIALIZED (
    SELECT schedule.*, asked.occurrence, {id_of_fire}
    FROM unnest(:schedules::uuid[], :occurrences::timestamptz[], :jobs::uuid[]) AS asked (schedule_id, occurrence, job_id)
    JOIN pulse.schedules AS schedule
        ON schedule.id = ANY(ARRAY[asked.schedule_id])
       AND COALESCE(schedule.queued_for, 'infinity') = asked.occurrence
       AND schedule.paused::int = 0
    {holder_of_fire}
    ORDER BY asked.schedule_id
    FOR UPDATE OF schedule SKIP LOCKED
),
step AS MATERIALIZED (
    SELECT locked.*, false AS is_held FROM locked WHERE NOT pulse.schedule_is_busy_v1(locked.id)
),
{fired_by_step},
done AS MATERIALIZED (
    SELECT step.*, {step_is_fired} AS is_new
    FROM step
    WHERE step.is_own OR ({step_is_fired} AND {step_stays_fired})
),
advanced AS (
    UPDATE pulse.schedules AS schedule
    SET queued_for = NULL,
        last_run_at = GREATEST(schedule.last_run_at, done.occurrence)
    FROM done
    WHERE schedule.id = ANY(ARRAY[done.id])
)
SELECT done.id AS schedule_id, done.topic, done.job_id, done.taken_id, done.occurrence, done.is_new, done.is_held
FROM done;

-- name: fire_now(schedule, job, finished_since)
-- From nothing to PENDING, ready: a fire by an operator, even if the schedule is paused. The cursor
-- stays. start_within counts from now. :finished_since as in insert_jobs.
WITH fired AS MATERIALIZED (
    INSERT INTO pulse.jobs (id, {fire_columns}, start_by)
    SELECT :job::uuid, {fire}, clock_timestamp() + step.start_within
    FROM pulse.schedules AS step
    WHERE id = :schedule::uuid
    ON CONFLICT DO NOTHING
    RETURNING id, topic
)
SELECT fired.id, fired.topic
FROM fired
WHERE pulse.completed_among_v1(ARRAY[fired.id], NULL, to_timestamp(:finished_since::float8)) IS NULL;
