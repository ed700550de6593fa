-- Fragments: SQL that several statements share, or that one statement needs several times. {name}
-- in a statement or in another fragment is replaced by the fragment of that name. This file has the
-- fragments that read, change and keep jobs. The other files are named by what their fragments are
-- for. Lists of columns, such as {job}, are made in columns.py.

-- name: is_ready
-- A job is queued from the time it is due until it ends or waits again, also while it runs.
-- ADR-0056
job.queued AND job.locked_by IS NULL AND {may_start}

-- name: is_claimable
-- Ready, and in no lane. ADR-0064
{is_ready} AND job.tier IS NULL

-- name: may_start
-- A job with a start_by must start for the first time before it. By clock_timestamp(): a claim may
-- have waited.
(job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())

-- name: rest_of_one
-- A single job is returned in full. Several are returned without payload, history and cursor.
CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.history END AS history,
    CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.progress ->> 'cursor' END AS cursor

-- name: unfinished_targets
-- The unfinished jobs with one of the statuses, which an operator's statement changes. In a form
-- that no partial index can serve: for hundreds of ids the planner might walk one.
target AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts, job.run
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[])
      AND job.status = ANY(:statuses::text[])
      AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    ORDER BY job.id
    FOR NO KEY UPDATE
)

-- name: keeps_its_start
-- A canceled job that no worker ever claimed is due when it was due before the cancel. A job that
-- waited for others had no such time, and may have lost its workflow since.
(NOT :at_once::bool AND job.status = 'CANCELED' AND job.run = 0 AND job.next_run_at > now() AND job.next_run_at < {without_end})

-- name: undoable
-- The values that an undo restores.
jsonb_build_object(
                'status', job.status, 'queued', job.queued, 'next_run_at', job.next_run_at, 'start_by', job.start_by,
                'finished_at', job.finished_at, 'finished_by', job.finished_by, 'last_error', job.last_error,
                'error_group', job.error_group, 'priority', job.priority, 'max_attempts', job.max_attempts,
                'crashes', job.crashes, 'unique_scope', job.unique_scope, 'waits_for', job.waits_for)

-- name: is_as_left
-- The job is as the action in its `undo` left it, and has the old values: a job that was running has
-- none. Only a change of priority may be undone in any status.
((job.undo ? 'was')
      AND job.status = COALESCE(job.undo ->> 'status', job.status)
      AND job.run = COALESCE((job.undo ->> 'run')::int, job.run)
      AND job.priority = COALESCE((job.undo ->> 'priority')::int, job.priority)
      AND (job.finished_at IS NULL OR job.undo ? 'status'))

-- name: steps_of_deleted
-- Deletes the steps and signals of the jobs in `deleted`: another job may get the id.
forgotten AS (
    DELETE FROM pulse.job_steps AS step
    USING deleted
    WHERE step.job_id = ANY(ARRAY[deleted.id]) AND deleted.steps IS NOT NULL
),
forgotten_signals AS (
    DELETE FROM pulse.job_signals AS signal
    USING deleted
    WHERE signal.job_id = ANY(ARRAY[deleted.id]) AND deleted.steps IS NOT NULL
)

-- name: tables_of_jobs
-- The tables that have jobs: pulse.jobs and the partitions of completed_jobs.
SELECT 'pulse.jobs'::regclass AS relid
    UNION ALL
    SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree WHERE tree.isleaf

-- name: dead_rows
(SELECT sum(pg_stat_get_dead_tuples(part.relid))::bigint FROM ({tables_of_jobs}) AS part)

-- name: was_canceled_in_worker
job.status = 'CANCELED' AND job.history -> -1 ->> 'outcome' = 'canceled'

-- name: end_of_rest
-- When a job that was canceled in a worker may be claimed again. The rest is longer than a worker
-- takes to start a job that it holds, so no worker starts it after another has completed it.
-- docs/figures.md#canceled-jobs-that-are-retried
job.finished_at + :rest::interval

-- name: finished_after
-- For export_jobs: finished jobs after (:after_time, :after_id) in the order of submission, at most
-- :look_at. A job that was submitted after :before cannot have finished before it. Whether a job of
-- a day finished in time is checked later: a check here would step over an unbounded number of
-- jobs. The tables of completed jobs, which may have millions, are read only if :statuses has
-- COMPLETED.
SELECT * FROM (
        (
            SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor,
                NULL::jsonb AS timeline
            FROM pulse.jobs AS job
            WHERE {is_next_to_export} AND job.finished_at IS NOT NULL
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
            FROM pulse.completed_jobs_by_day AS job
            WHERE 'COMPLETED' = ANY(:statuses::text[]) AND {is_next_to_export} AND job.topic >= ''
              AND job.finished_at >= COALESCE(date_trunc('day', :since::timestamptz), '-infinity')
              AND job.finished_at < date_trunc('day', :before::timestamptz) + interval '1 day'
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
            FROM pulse.completed_jobs_kept AS job
            WHERE 'COMPLETED' = ANY(:statuses::text[]) AND {is_next_to_export} AND job.topic >= ''
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
    ) AS job
    ORDER BY job.submitted_at, job.id
    LIMIT :look_at

-- name: is_next_to_export
(job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid) AND job.submitted_at < :before::timestamptz

-- name: export_bytes
-- About the size of the job in memory and in a message.
octet_length(looked_at.payload) + COALESCE(octet_length(looked_at.last_error), 0)
        + COALESCE(octet_length(looked_at.result), 0)
        + COALESCE(pg_column_size(looked_at.history), 0) + COALESCE(pg_column_size(looked_at.metadata), 0)
        + COALESCE(looked_at.steps, 0) * 150 + 300

-- name: jobs_of_a_day
-- The next :jobs jobs of a partition after (:after_time, :after_id), in the order of submission.
-- One server at a time.
turn AS MATERIALIZED (
    SELECT pulse.try_lock_v1('completed_days') AS is_ours
),
looked_at AS MATERIALIZED (
    SELECT job.id, job.submitted_at, job.topic
    FROM pulse.completed_jobs_day AS job
    WHERE (SELECT turn.is_ours FROM turn)
      AND (job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid) AND job.topic >= ''
    ORDER BY job.submitted_at, job.id
    LIMIT :jobs
)

-- name: bytes_of_completed
-- About the size of a completed job.
(octet_length(job.payload) + COALESCE(octet_length(job.result), 0))

-- name: walk_of_a_day
(SELECT count(*) FROM looked_at) AS looked_at, reached.submitted_at, reached.id

-- name: reached_in_a_day
LEFT JOIN LATERAL (
    SELECT looked_at.submitted_at, looked_at.id
    FROM looked_at
    ORDER BY looked_at.submitted_at DESC, looked_at.id DESC
    LIMIT 1
) AS reached ON true

-- name: topic_has_its_own
-- A duration. Checked before the join with the settings, which takes longer for each row than reading it.
looked_at.topic = ANY(ARRAY(SELECT known.topic FROM pulse.retention_in_force AS known WHERE known.completed_kept IS NOT NULL))
