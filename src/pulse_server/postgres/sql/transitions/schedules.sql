-- Fires: a schedule makes a job, which is an ordinary one from then on. jobs.sql has the rules for all transitions.

-- name: fire_schedules
-- From nothing to PENDING, ready, and the cursor moves on: one step of each schedule whose cursor still stands at the
-- occurrence and that is not paused. Inserts the occurrence's job, then moves the cursor, or deletes the schedule after
-- its last occurrence. It is one statement: at no moment does the job exist while the cursor has not moved. The job's id
-- is derived from the occurrence, so a cursor that was set back cannot make a second job of it. If a job of another
-- origin has that id, the fire takes a random one. If that job was committed after this statement began, nothing is
-- inserted and the cursor stays: the next tick sees the job. ADR-0018
-- A start_within counts from the occurrence: the job of a late fire may be one that never starts.
-- `+ interval '0'` keeps the planner off schedules_due: where many schedules share a moment, as hourly ones do, each
-- look-up by it would walk them all.
--   $1 schedule ids   $2 occurrences   $3 next occurrences (NULL: none)   $4 job ids (NULL: skip the occurrence)
WITH step AS MATERIALIZED (
    SELECT
        schedule.*, step.following, holder.is_own,
        CASE WHEN NOT holder.is_own THEN gen_random_uuid() ELSE step.job_id END AS job_id,
        CASE WHEN NOT holder.is_own THEN step.job_id END AS taken_id
    FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::uuid[])
        AS step (schedule_id, occurrence, following, job_id)
    JOIN pulse.schedules AS schedule
        ON schedule.id = step.schedule_id
       AND schedule.next_run_at + interval '0' = step.occurrence
       AND NOT schedule.paused
    LEFT JOIN LATERAL (
        SELECT job.schedule_id IS NOT DISTINCT FROM schedule.id AS is_own
        FROM pulse.all_jobs AS job
        WHERE job.id = step.job_id
    ) AS holder ON true
    ORDER BY schedule.id
    FOR UPDATE OF schedule SKIP LOCKED
),
fired AS (
    INSERT INTO pulse.jobs (id, {fire_columns}, start_by)
    SELECT job_id, {fire}, step.next_run_at + step.start_within
    FROM step
    WHERE job_id IS NOT NULL AND is_own IS NOT TRUE
    ON CONFLICT DO NOTHING
    RETURNING id
),
taken_back AS MATERIALIZED (
    SELECT unnest(pulse.completed_among(array_agg(fired.id), NULL, min(step.next_run_at) - interval '1 hour')) AS id
    FROM fired
    JOIN step ON step.job_id = fired.id
),
done AS MATERIALIZED (
    SELECT step.*, fired.id IS NOT NULL AS is_new
    FROM step
    LEFT JOIN fired ON fired.id = step.job_id
    LEFT JOIN taken_back ON taken_back.id = step.job_id
    WHERE step.job_id IS NULL OR step.is_own OR (fired.id IS NOT NULL AND taken_back.id IS NULL)
),
advanced AS (
    UPDATE pulse.schedules AS schedule
    SET next_run_at = done.following,
        last_run_at = CASE WHEN done.job_id IS NULL THEN schedule.last_run_at ELSE done.next_run_at END
    FROM done
    WHERE schedule.id = done.id AND done.following IS NOT NULL
),
ended AS (
    DELETE FROM pulse.schedules AS schedule
    USING done
    WHERE schedule.id = done.id AND done.following IS NULL
)
SELECT done.id AS schedule_id, done.topic, done.job_id, done.taken_id, done.next_run_at AS occurrence, done.is_new
FROM done;

-- name: fire_now
-- From nothing to PENDING, ready: a fire by an operator, whether the schedule is paused or not. The cursor stays. A
-- start_within counts from now.
--   $3 as $11 of insert_jobs
WITH fired AS MATERIALIZED (
    INSERT INTO pulse.jobs (id, {fire_columns}, start_by)
    SELECT $2::uuid, {fire}, clock_timestamp() + step.start_within
    FROM pulse.schedules AS step
    WHERE id = $1::uuid
    ON CONFLICT DO NOTHING
    RETURNING id, topic
)
SELECT fired.id, fired.topic
FROM fired
WHERE pulse.completed_among(ARRAY[fired.id], NULL, $3::timestamptz) IS NULL;
