-- These files hold every statement that changes a row of pulse.jobs, by what it does:
--
--   jobs.sql       submit, cancel, retry, prioritize, delete
--   undo.sql       revert an action of an operator
--   unique.sql     submits with a unique key
--   claims.sql     claim, of one topic or several
--   work.sql       complete, fail, extend, release
--   reaping.sql    leases that expired
--   promotion.sql  waiting jobs whose time has come
--
-- Besides, transitions.sql of steps (store, suspend, signal), of schedules (fires), and of work (finished
-- jobs that have been kept long enough).
--
-- Each statement's WHERE clause is the rule: zero rows means that the transition was not legal. No statement reads
-- first and writes later. docs/job-lifecycle.md draws the machine. Fragments such as {job} are in database/fragments/
-- and in fragments.sql of a room.
--
-- Four rules keep them fast at any table size (ADR-0007):
--   * A table is joined by its key in a form that is no merge clause: `= ANY(ARRAY[driver.id])`, or
--     the two bounds of {claim_holds}. ORDER BY and GROUP BY name the column of the driver. An
--     EXISTS, or a look-up by two columns, is a subselect with OFFSET 0, which does not become a join.
--   * Fences compare locked_by and run, never the status. A CHECK ties locked_by to RUNNING, so the
--     rule is the same, and only the primary key can serve it.
--   * Durations are read with date_part, which returns a float. EXTRACT would make a numeric first.
--   * now(), the start of the statement by the database's clock, is compared with indexes.
--     clock_timestamp() is stored: a volatile function cannot be an index condition.
--
-- complete_jobs, fail_jobs, extend_leases, release_jobs and the statements of operators wait for a
-- locked row only as long as lock_timeout. After a timeout the statement is sent again behind
-- lock_free_jobs (locks.sql), for the free rows. ADR-0042

-- name: insert_jobs(*new_job, finished_since)
-- From nothing to PENDING, ready at once unless it starts later. A row whose id or (topic, key)
-- exists is left out, or taken back if the existing job is completed; the caller looks up that job
-- and returns it. No completed job with one of the ids finished before :finished_since, in seconds
-- since 1970; NULL: unknown. If the ids were made for this request, the statement is sent without
-- the look for conflicts, which costs a fifth of it. If an id exists nevertheless, because an
-- answer was lost, the whole statement fails and is sent again with the look.
WITH inserted AS (
    {insert_of_new}
    FROM ({given_jobs}) AS new
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, submitted_at
)
SELECT {inserted_at_last}
FROM inserted;

-- name: insert_one(*new_job, finished_since)
-- insert_jobs for one job, with a value in place of each array. Arrays of one and aggregates over
-- one row take a ninth of the time of a lone submit. No row: the job was left out.
WITH inserted AS (
    {insert_of_new}
    FROM (SELECT {lone_job}) AS new
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, submitted_at
)
SELECT {lone_inserted_at_last}
FROM inserted;

-- name: hand_over_jobs(*new_job, finished_since, workers, confirms, lease, level_topics, level_priorities, level_ages, worker)
-- insert_jobs and claim_batch in one, for jobs that start at once and for which a worker has a free
-- slot: from nothing to RUNNING, under that worker's lease. The rules of a claim apply: this
-- statement reads the pause switches, and a job becomes PENDING if other jobs are ready in its
-- topic, or if it has no worker. Each topic is looked up once, however many jobs it gets: while a
-- transaction is held open, the head of the claim index is a long walk over dead entries. ADR-0030
-- :confirms: NULL if all workers confirm. Other jobs may be ready only at the levels; NULL:
-- anywhere in the topic. ADR-0055
-- :worker has the index into :workers of each job, or null, as the text of an array.
WITH free AS MATERIALIZED (
    SELECT asked.topic
    FROM (SELECT DISTINCT topic FROM unnest(:topic::text[]) AS topic) AS asked
    WHERE {asked_topic_is_free}
),
new AS (
    SELECT
        {given_job},
        (:workers::text[])[given.worker] AS worker_id, COALESCE((:confirms::bool[])[given.worker], true) AS confirms
    FROM unnest({given_arrays}, :worker::text::int[]) AS given ({given_columns}, worker)
),
inserted AS (
    {insert_of_handed_over}
),
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT {check_of_handed_over}, array_agg(inserted.id)
    FROM inserted
    WHERE inserted.locked_by IS NOT NULL
    HAVING count(*) > 0
)
SELECT {inserted_at_last}, array_agg(inserted.id) FILTER (WHERE inserted.locked_by IS NOT NULL) AS taken
FROM inserted;

-- name: hand_over_one(*new_job, finished_since, worker, confirms, lease, level_topics, level_priorities, level_ages)
-- hand_over_jobs for one job. Except for the levels, each array is replaced by a value, as in
-- insert_one.
WITH free AS MATERIALIZED (
    SELECT asked.topic
    FROM (SELECT :topic::text AS topic) AS asked
    WHERE {asked_topic_is_free}
),
new AS (
    SELECT {lone_job}, :worker::text AS worker_id, :confirms::bool AS confirms
),
inserted AS (
    {insert_of_handed_over}
),
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT {check_of_handed_over}, ARRAY[inserted.id]
    FROM inserted
    WHERE inserted.locked_by IS NOT NULL
)
SELECT {lone_inserted_at_last}, CASE WHEN inserted.locked_by IS NOT NULL THEN ARRAY[inserted.id] END AS taken
FROM inserted;

-- name: hand_over_limited(*new_job, finished_since, claimed_topic, slots, order, workers, confirms, lease, most_bytes)
-- insert_rich_jobs and claim_limited in one, for jobs of one limited topic for which workers have
-- free slots. The claim is the usual one of the topic, so it takes the next jobs in order: the new
-- jobs, or older ones. It opens the lanes of the new jobs, or leaves a notice for the next claim if
-- another session has locked the pool. ADR-0064
WITH new AS (
    {given_jobs}
),
inserted AS (
    {insert_of_new_in_lanes}
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, submitted_at, lane, tier
),
stored AS MATERIALIZED (
    SELECT {inserted_at_last},
        COALESCE(array_agg(DISTINCT inserted.lane) FILTER (WHERE inserted.tier IS NOT NULL), '{}') AS lanes
    FROM inserted
)
SELECT stored.stored, stored.ids, stored.taken_back, stored.stored_at, claim.*
FROM stored
LEFT JOIN LATERAL {claim_after_insert} AS claim ON true;

-- name: cancel_jobs(ids, reason, statuses, action)
-- From PENDING, RETRYING or RUNNING, limited to :statuses, to CANCELED. A running job loses its
-- lease in this statement: the fences refuse every later report of its worker, which is notified to
-- stop. With an :action, a job that waited keeps the values that undo_jobs restores.
WITH {unfinished_targets},
canceled AS (
    UPDATE pulse.jobs AS job
    SET status = 'CANCELED',
        ended_as = 'CANCELED',
        queued = false,
        finished_at = clock_timestamp(),
        history = CASE
            WHEN job.locked_by IS NULL THEN job.history
            ELSE pulse.with_attempt_v1(
                job.history, job.attempts, job.run, job.locked_by, job.started_at, 'canceled', :reason::text)
        END,
        last_error = COALESCE(NULLIF(:reason::text, ''), job.last_error),
        locked_by = NULL,
        lease_until = NULL,
        undo = CASE
            WHEN :action::text IS NULL THEN NULL
            WHEN job.locked_by IS NOT NULL THEN jsonb_build_object('action', :action::text, 'running', true)
            ELSE jsonb_build_object('action', :action::text, 'status', 'CANCELED', 'was', {undoable})
        END
    FROM target
    WHERE job.id = ANY(ARRAY[target.id])
    RETURNING {job}, {rest_of_one}, target.locked_by AS ended_worker_id, target.attempts AS ended_attempt,
        target.run AS ended_run, {freed_by}
),
ended AS (
    SELECT * FROM canceled WHERE canceled.ended_worker_id IS NOT NULL
),
{notices_of_ended},
-- A job that waited for its retry may have held its lane.
released AS (
    INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
    SELECT policy.pool, canceled.topic, array_agg(DISTINCT canceled.lane_held), 0
    FROM canceled
    JOIN pulse.limit_policies AS policy ON policy.topic = ANY(ARRAY[canceled.topic]) AND policy.ordered
    WHERE canceled.ended_worker_id IS NULL AND canceled.lane_held IS NOT NULL
    GROUP BY policy.pool, canceled.topic
)
SELECT * FROM canceled;

-- name: retry_jobs(ids, attempts, statuses, fresh, rest, at_once, action)
-- From DEAD_LETTERED or CANCELED, limited to :statuses, to PENDING, ready at once, with at least
-- :attempts more attempts. A job that was canceled before its first claim keeps a later start time
-- and its start_by, unless :at_once. The count of attempts and the growth of retry delays continue.
-- The count of lost leases restarts. The guard has the form of {unfinished_targets}, for the same
-- reason. A key that is unique while its job waits stays free. If the key is unique for the job's life and
-- another job holds it now, the whole statement fails, by the index jobs_unique.
-- A job that waits for others in a canceled workflow stays as it is: it would be canceled again.
-- A job that was canceled in a worker, as its history shows, is due at the earliest :rest after the
-- cancel: by then that worker no longer starts it, even if it missed the cancel.
-- docs/figures.md#canceled-jobs-that-are-retried
-- Steps and progress stay. With :fresh both are deleted, and also the signals that the job took.
-- With an :action, the job keeps the values that undo_jobs restores. Deleted steps do not come back.
-- The undo leaves it to the workflow whether a job that it canceled is canceled again.
WITH retried AS (
    UPDATE pulse.jobs AS job
    SET status = 'PENDING',
        -- A job that waited for other jobs of its workflow waits again. ADR-0077
        queued = CASE
            WHEN job.held OR {keeps_its_start} THEN false
            WHEN {was_canceled_in_worker}
            THEN {end_of_rest} <= now()
            ELSE true
        END,
        next_run_at = CASE
            WHEN job.held THEN {without_end}
            WHEN {keeps_its_start} THEN job.next_run_at
            WHEN {was_canceled_in_worker}
            THEN GREATEST(clock_timestamp(), {end_of_rest})
            ELSE clock_timestamp()
        END,
        max_attempts = GREATEST(job.max_attempts, job.attempts + :attempts::int),
        crashes = NULL,
        start_by = CASE WHEN {keeps_its_start} THEN job.start_by END,
        unique_scope = CASE WHEN job.unique_scope = 'live' THEN 'live' END,
        finished_at = NULL,
        finished_by = NULL,
        ended_as = NULL,
        error_group = '',
        waits_for = NULL,
        steps = CASE WHEN :fresh::bool AND job.steps IS NOT NULL THEN 0 ELSE job.steps END,
        step_bytes = CASE WHEN NOT :fresh::bool THEN job.step_bytes END,
        signals = CASE WHEN NOT :fresh::bool THEN job.signals END,
        signal_bytes = CASE WHEN NOT :fresh::bool THEN job.signal_bytes END,
        progress = CASE WHEN NOT :fresh::bool THEN job.progress END,
        tier = NULL,
        rank_at = NULL,
        undo = CASE
            WHEN :action::text IS NULL THEN NULL
            WHEN :fresh::bool AND (job.steps IS NOT NULL OR job.progress IS NOT NULL)
            THEN jsonb_build_object('action', :action::text)
            ELSE jsonb_build_object('action', :action::text, 'status', 'PENDING', 'run', job.run, 'was', CASE
                WHEN {was_canceled_by_workflow} THEN {undoable} - {decided_by_workflow} ELSE {undoable} END)
        END
    WHERE job.id = ANY(:ids::uuid[])
      AND job.status = ANY(:statuses::text[])
      AND job.status NOT IN ('PENDING', 'RETRYING', 'RUNNING', 'COMPLETED')
      AND NOT {waits_in_canceled_workflow}
    RETURNING {job}, {rest_of_one}
),
forgotten AS (
    DELETE FROM pulse.job_steps AS step
    USING retried
    WHERE :fresh::bool AND step.job_id = ANY(ARRAY[retried.id])
),
forgotten_signals AS (
    DELETE FROM pulse.job_signals AS signal
    USING retried
    WHERE :fresh::bool AND signal.job_id = ANY(ARRAY[retried.id]) AND signal.taken_at IS NOT NULL
)
SELECT * FROM retried;

-- name: prioritize_jobs(ids, priority, statuses, action)
-- PENDING, RETRYING or RUNNING, limited to :statuses, keeps its status and gets another priority. A
-- running job keeps running: its new priority counts from its next claim on. A job that waits in a
-- lane leaves it, and enters it at its new place in the next claim. Rows are locked in the same
-- order as by reports. With an :action, the job keeps its old priority for undo_jobs.
WITH {unfinished_targets}
UPDATE pulse.jobs AS job
SET priority = :priority::int,
    tier = CASE WHEN job.locked_by IS NOT NULL THEN job.tier END,
    rank_at = CASE WHEN job.locked_by IS NOT NULL THEN job.rank_at END,
    undo = CASE WHEN :action::text IS NOT NULL THEN jsonb_build_object(
        'action', :action::text, 'priority', :priority::int, 'was', jsonb_build_object('priority', job.priority)) END
FROM target
WHERE job.id = ANY(ARRAY[target.id])
RETURNING {job}, {rest_of_one};

-- name: delete_jobs(ids, statuses)
-- From COMPLETED, DEAD_LETTERED or CANCELED, limited to :statuses, to nothing: id and idempotency
-- key are free again. The rule is checked on the locked row, so a retry that comes first wins. A job
-- stays while its workflow has not ended: other jobs may need its result.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[])
      AND job.status = ANY(:statuses::text[])
      AND job.status NOT IN ('PENDING', 'RETRYING', 'RUNNING')
      AND NOT {unfinished_workflow}
    ORDER BY job.id
    FOR UPDATE
),
deleted AS (
    DELETE FROM pulse.jobs AS job
    USING target
    WHERE job.id = ANY(ARRAY[target.id])
    RETURNING job.id, job.status, job.steps
),
{steps_of_deleted},
deleted_completed AS (
    DELETE FROM pulse.completed_jobs AS job
    WHERE job.id = ANY(:ids::uuid[]) AND 'COMPLETED' = ANY(:statuses::text[]) AND NOT {unfinished_workflow}
    RETURNING job.id
)
SELECT deleted.id, deleted.status FROM deleted
UNION ALL
SELECT deleted_completed.id, 'COMPLETED' FROM deleted_completed;
