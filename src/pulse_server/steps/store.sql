-- Reads the steps of a job, and deletes orphaned steps and signals. steps/transitions.sql has the
-- statements that change a job.

-- name: list_steps(job)
-- In the order of storing. A completed job keeps its steps without values: timeline_of_completed.
SELECT {step}
FROM pulse.job_steps AS step
WHERE step.job_id = :job::uuid
ORDER BY step.position, step.name;

-- name: find_step(job, name)
-- A repeat learns that its step was stored. The message in the WAL has the same reason as in
-- look_up_jobs.
SELECT {step}
FROM pulse.job_steps AS step
WHERE step.job_id = :job::uuid AND step.name = :name::text AND step.stored_at IS NOT NULL
  AND (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL;

-- name: timeline_of_completed(job)
SELECT done.timeline FROM pulse.completed_jobs AS done WHERE done.id = :job::uuid;

-- name: knows_signal(job, signal)
-- Whether the job received a signal under this id, for a sender that repeats it. A completed job
-- knows the signals that it took.
SELECT (
    EXISTS (SELECT FROM pulse.job_signals AS signal WHERE signal.id = :signal::uuid AND signal.job_id = :job::uuid)
    OR EXISTS (
        SELECT
        FROM pulse.completed_jobs AS done
        WHERE done.id = :job::uuid AND done.timeline @> jsonb_build_array(jsonb_build_object('signal', :signal::uuid))
    )
) AND (SELECT pg_catalog.pg_logical_emit_message(true, 'pulse', '')) IS NOT NULL AS is_known;

-- name: forget_steps(after_job, most)
-- Deletes steps whose job is no longer in pulse.jobs: a server of the previous release completed or
-- deleted it. Reads at most :most steps of jobs after :after_job. A job is stored before its steps, so a step
-- without a job has lost it.
WITH looked_at AS MATERIALIZED (
    SELECT step.job_id, step.name FROM pulse.job_steps AS step WHERE step.job_id > :after_job::uuid ORDER BY step.job_id LIMIT :most
),
forgotten AS (
    DELETE FROM pulse.job_steps AS step
    USING looked_at
    WHERE step.job_id = ANY(ARRAY[looked_at.job_id]) AND step.name = looked_at.name
      AND NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = looked_at.job_id OFFSET 0)
    RETURNING step.job_id
)
SELECT
    (SELECT count(*) FROM looked_at) AS looked_at,
    (SELECT count(*) FROM forgotten) AS forgotten,
    (SELECT looked_at.job_id FROM looked_at ORDER BY looked_at.job_id DESC LIMIT 1) AS reached;

-- name: forget_signals(after_job, most)
-- forget_steps for signals.
WITH looked_at AS MATERIALIZED (
    SELECT signal.job_id, signal.id FROM pulse.job_signals AS signal WHERE signal.job_id > :after_job::uuid
    ORDER BY signal.job_id LIMIT :most
),
forgotten AS (
    DELETE FROM pulse.job_signals AS signal
    USING looked_at
    WHERE signal.id = ANY(ARRAY[looked_at.id])
      AND NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = looked_at.job_id OFFSET 0)
    RETURNING signal.job_id
)
SELECT
    (SELECT count(*) FROM looked_at) AS looked_at,
    (SELECT count(*) FROM forgotten) AS forgotten,
    (SELECT looked_at.job_id FROM looked_at ORDER BY looked_at.job_id DESC LIMIT 1) AS reached;
