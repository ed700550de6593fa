-- Steps of handlers, their sleeps, and the signals that they wait for. jobs/transitions/jobs.sql has the rules for
-- all transitions. ADR-0069
--
-- A statement locks the job's row in pulse.jobs before it changes steps or signals: the row is both
-- the fence and the lock. Its column `steps` counts the steps, and is NULL for a plain job.

-- name: store_steps(ids, workers, attempts, runs, names, values, took, most_steps, most_bytes)
-- RUNNING stays RUNNING, with one more step, if the claim still holds. An existing step of that
-- name stays unchanged: the caller looks it up. A step that does not fit is not stored. Returns for
-- each claim that holds whether its step was stored, by its place in the request: several may be of
-- one job. The handler has started, so the attempt counts from here on.
WITH held AS MATERIALIZED (
    SELECT claim.place, job.id, job.attempts, COALESCE(job.steps, 0) AS steps, COALESCE(job.step_bytes, 0) AS step_bytes,
        claim.name, claim.value, claim.ran, octet_length(claim.name) + octet_length(claim.value) AS bytes
    FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :names::text[], :values::bytea[], :took::interval[]) WITH ORDINALITY
        AS claim (id, worker_id, attempt, run, name, value, ran, place)
    JOIN pulse.jobs AS job ON {claim_holds}
    ORDER BY claim.id
    FOR NO KEY UPDATE OF job
),
placed AS MATERIALIZED (
    SELECT held.*, held.steps + row_number() OVER line AS position, held.step_bytes + sum(held.bytes) OVER line AS bytes_then
    FROM held
    WINDOW line AS (PARTITION BY held.id ORDER BY held.place)
),
stored AS (
    INSERT INTO pulse.job_steps (job_id, name, position, attempt, started_at, stored_at, kind, value)
    SELECT placed.id, placed.name, placed.position, placed.attempts,
        clock_timestamp() - placed.ran, clock_timestamp(), 'step', placed.value
    FROM placed
    WHERE placed.position <= :most_steps::int AND placed.bytes_then <= :most_bytes::int
    ON CONFLICT DO NOTHING
    RETURNING job_id, name, octet_length(name) + octet_length(value) AS bytes
),
counted AS (
    UPDATE pulse.jobs AS job
    SET steps = COALESCE(job.steps, 0) + new.steps,
        step_bytes = COALESCE(job.step_bytes, 0) + new.bytes,
        delivered = true
    FROM (
        SELECT stored.job_id, count(*) AS steps, sum(stored.bytes) AS bytes FROM stored GROUP BY stored.job_id
    ) AS new
    WHERE job.id = ANY(ARRAY[new.job_id])
)
-- A hashed subplan: a join could only be a nested loop, over the square of the batch.
SELECT placed.place, (placed.id, placed.name) IN (SELECT stored.job_id, stored.name FROM stored) AS is_stored
FROM placed;

-- name: suspend_jobs(ids, workers, attempts, runs, steps, signals, delays, most_steps, error, error_group, progress)
-- From RUNNING to RETRYING, due when its sleep or its wait for a signal ends; if the claim still
-- holds. This costs no attempt: max_attempts grows, as in snooze_jobs, but suspensions are not
-- bounded. The step is stored with its end: a job that runs earlier is suspended again until the
-- same moment. If the signal is already there, the job is ready at once. This is read behind the
-- lock on the job, which every signal takes. To DEAD_LETTERED if the job already has :most_steps
-- steps. The history keeps only the last of several suspensions in a row.
-- :signals has one name per line; '': it sleeps.
-- :delays: NULL is without end.
-- :error and :error_group are for dead-lettered jobs.
WITH held AS MATERIALIZED (
    SELECT claim.id, claim.worker_id, claim.attempt, claim.run, job.attempts, COALESCE(job.steps, 0) AS steps,
        claim.step, claim.signal, claim.delay, claim.progress
    FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :steps::text[], :signals::text[], :delays::interval[], :progress::text[])
        AS claim (id, worker_id, attempt, run, step, signal, delay, progress)
    JOIN pulse.jobs AS job ON {claim_holds}
    ORDER BY claim.id
    FOR NO KEY UPDATE OF job
),
judged AS MATERIALIZED (
    SELECT
        held.*,
        known.name IS NULL AS is_new,
        CASE WHEN held.signal = '' THEN 'sleeps' ELSE 'waits for ' || replace(held.signal, E'\n', ' or ') END AS reason,
        CASE WHEN known.name IS NULL THEN clock_timestamp() + held.delay ELSE known.until END AS until,
        CASE WHEN held.signal = '' THEN false ELSE pulse.has_signal_v1(held.id, held.signal) END AS has_come,
        known.name IS NULL AND held.steps >= :most_steps::int AS is_final
    FROM held
    LEFT JOIN pulse.job_steps AS known ON known.job_id = ANY(ARRAY[held.id]) AND known.name = held.step
),
stored AS (
    INSERT INTO pulse.job_steps (job_id, name, position, attempt, started_at, stored_at, until, kind)
    SELECT judged.id, judged.step, judged.steps + 1, judged.attempts,
        clock_timestamp(), CASE WHEN judged.signal = '' THEN clock_timestamp() END, judged.until,
        CASE WHEN judged.signal = '' THEN 'sleep' ELSE 'signal' END
    FROM judged
    WHERE judged.is_new AND NOT judged.is_final
    ON CONFLICT DO NOTHING
),
ended AS (
    UPDATE pulse.jobs AS job
    SET status = CASE WHEN claim.is_final THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
        ended_as = CASE WHEN claim.is_final THEN 'DEAD_LETTERED' END,
        queued = claim.has_come AND NOT claim.is_final,
        finished_at = CASE WHEN claim.is_final THEN clock_timestamp() END,
        finished_by = CASE WHEN claim.is_final THEN job.locked_by END,
        attempts = job.attempts - 1,
        suspensions = COALESCE(job.suspensions, 0) + 1,
        steps = claim.steps + CASE WHEN claim.is_new AND NOT claim.is_final THEN 1 ELSE 0 END,
        waits_for = CASE WHEN NOT claim.is_final THEN claim.signal END,
        next_run_at = CASE WHEN claim.has_come THEN clock_timestamp() ELSE COALESCE(claim.until, {without_end}) END,
        start_by = NULL,
        last_error = CASE WHEN claim.is_final THEN :error::text ELSE job.last_error END,
        error_group = CASE WHEN claim.is_final THEN :error_group::text ELSE '' END,
        history = pulse.with_attempt_v1(
            CASE WHEN job.history -> -1 ->> 'outcome' = 'suspended' THEN job.history - -1 ELSE job.history END,
            job.attempts, job.run, job.locked_by, job.started_at, 'suspended', claim.reason),
        progress = {progress_with_report},
        -- Its next claim puts it into its lane again.
        tier = NULL,
        rank_at = NULL,
        locked_by = NULL,
        lease_until = NULL
    FROM judged AS claim
    WHERE job.id = ANY(ARRAY[claim.id])
    RETURNING job.id, claim.worker_id, claim.attempt, claim.run, job.topic,
        date_part('epoch', clock_timestamp() - job.started_at) AS ran_seconds, job.status, job.queued, {freed_by}
),
{notices_of_ended}
SELECT ended.id, ended.worker_id, ended.attempt, ended.run, ended.topic, ended.ran_seconds, ended.status, ended.queued FROM ended;

-- name: take_signal(ids, worker, attempt, run, step, signals, most_steps)
-- RUNNING stays RUNNING, and the oldest signal of the names becomes a step, if the claim still
-- holds and a signal is there. If none is there and the wait has ended, the timeout is stored: no
-- later attempt finds the signal. An existing step of that name stays. Of two concurrent
-- statements, the second finds the signal taken, and takes none. Returns whether the job has too
-- many steps, and whether the step is stored; no row if the claim does not hold. The caller looks
-- up the stored step.
-- :ids is the job, an array of one.
-- :signals has one name per line.
WITH held AS MATERIALIZED (
    SELECT job.id, job.attempts, COALESCE(job.steps, 0) AS steps
    FROM (SELECT (:ids::uuid[])[1] AS id, :worker::text AS worker_id, :attempt::int AS attempt, :run::int AS run) AS claim
    JOIN pulse.jobs AS job ON {claim_holds}
    FOR NO KEY UPDATE OF job
),
judged AS MATERIALIZED (
    SELECT
        held.*,
        known.name IS NOT NULL AS is_known,
        known.stored_at IS NOT NULL AS is_stored,
        known.name IS NULL AND held.steps >= :most_steps::int AS is_over,
        known.until <= clock_timestamp() AND NOT pulse.has_signal_v1(held.id, :signals::text) AS is_late,
        next.id AS signal_id
    FROM held
    LEFT JOIN pulse.job_steps AS known ON known.job_id = ANY(ARRAY[held.id]) AND known.name = :step::text
    LEFT JOIN LATERAL (
        SELECT signal.id
        FROM pulse.job_signals AS signal
        WHERE signal.job_id = ANY(ARRAY[held.id]) AND signal.name = ANY(string_to_array(:signals::text, E'\n')) AND signal.taken_at IS NULL
        ORDER BY signal.number
        LIMIT 1
    ) AS next ON true
),
taken AS (
    UPDATE pulse.job_signals AS signal
    SET taken_at = clock_timestamp()
    FROM judged
    WHERE signal.id = ANY(ARRAY[judged.signal_id]) AND signal.taken_at IS NULL AND NOT judged.is_stored AND NOT judged.is_over
    RETURNING signal.id, signal.value, signal.sent_at
),
stored AS (
    INSERT INTO pulse.job_steps AS step
        (job_id, name, position, attempt, started_at, stored_at, signal_id, kind, value)
    SELECT judged.id, :step::text, judged.steps + 1, judged.attempts, clock_timestamp(), clock_timestamp(), taken.id,
        'signal', taken.value
    FROM judged
    CROSS JOIN taken
    ON CONFLICT (job_id, name) DO UPDATE
        SET attempt = excluded.attempt, stored_at = excluded.stored_at, signal_id = excluded.signal_id,
            value = excluded.value
        WHERE step.stored_at IS NULL AND step.kind = 'signal'
    RETURNING step.job_id
),
counted AS (
    UPDATE pulse.jobs AS job
    SET steps = COALESCE(job.steps, 0) + 1,
        delivered = true
    FROM judged
    CROSS JOIN stored
    WHERE job.id = ANY(ARRAY[judged.id]) AND NOT judged.is_known
),
timed_out AS (
    UPDATE pulse.job_steps AS step
    SET stored_at = clock_timestamp(), attempt = judged.attempts
    FROM judged
    WHERE step.job_id = ANY(ARRAY[judged.id]) AND step.name = :step::text AND step.stored_at IS NULL AND judged.is_late
      AND judged.signal_id IS NULL
    RETURNING step.job_id
)
SELECT
    judged.is_over,
    judged.is_stored OR EXISTS (SELECT FROM stored) OR EXISTS (SELECT FROM timed_out) AS is_stored
FROM judged;

-- name: signal_job(ids, signal_id, name, value, most_signals, most_bytes)
-- An unfinished job keeps its status and gets a signal. A job that waits for it becomes ready, as
-- in a promotion. A signal with a known id is a repeat: nothing changes. No row: the job does not
-- exist, or it is finished. Signals are counted apart from steps: senders must not use up the
-- handler's quota.
-- :ids is the job, an array of one.
WITH target AS MATERIALIZED (
    SELECT job.id, job.topic, job.queued AND job.locked_by IS NULL AS is_ready,
        job.status = 'RETRYING' AND NOT job.queued AND COALESCE(:name::text = ANY(string_to_array(job.waits_for, E'\n')), false)
            AS is_awaited,
        COALESCE(job.signals, 0) + 1 AS signals,
        COALESCE(job.signal_bytes, 0) + octet_length(:name::text) + octet_length(:value::bytea) AS bytes
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[]) AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    FOR NO KEY UPDATE
),
sent AS (
    INSERT INTO pulse.job_signals (id, job_id, name, value)
    SELECT :signal_id::uuid, target.id, :name::text, :value::bytea
    FROM target
    WHERE target.signals <= :most_signals::int AND target.bytes <= :most_bytes::int
    ON CONFLICT DO NOTHING
    RETURNING id
),
woken AS (
    UPDATE pulse.jobs AS job
    SET steps = COALESCE(job.steps, 0),
        signals = target.signals,
        signal_bytes = target.bytes,
        queued = job.queued OR target.is_awaited,
        next_run_at = CASE WHEN target.is_awaited THEN clock_timestamp() ELSE job.next_run_at END,
        tier = CASE WHEN NOT target.is_awaited THEN job.tier END,
        rank_at = CASE WHEN NOT target.is_awaited THEN job.rank_at END
    FROM target
    CROSS JOIN sent
    WHERE job.id = ANY(ARRAY[target.id])
)
SELECT
    target.topic, EXISTS (SELECT FROM sent) AS is_stored, target.is_awaited, target.is_ready OR target.is_awaited AS is_ready,
    target.signals > :most_signals::int AS is_over
FROM target;
