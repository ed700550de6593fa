-- Completes a job in the transaction of its handler: its rows and the end of the job are committed
-- together, or neither. From this call on the lock of the row keeps the claim, also past its lease.
-- Raises PU001 if the claim does not hold, so that the rows are rolled back, and PU002 if this very
-- run has completed the job already. With the planner settings of the servers' sessions, as
-- enqueue_rich: with the defaults each call is planned anew, which takes three times as long as the
-- rest of it. ADR-0075
-- The token proves that the caller is the worker: it is the hash of a key that only this worker was sent, of the job and
-- of the run. Workers and runs are no secret. Nothing is looked up before it is compared, and a caller without it learns
-- nothing. The comparison may take longer the more bytes are right: the caller cannot choose the hash that its guess is
-- compared with, and a call takes a thousand times as long as a byte. ADR-0084
CREATE OR REPLACE FUNCTION pulse.complete_job(job uuid, worker text, run integer, token bytea, result bytea DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    id    constant uuid := job;
    most  integer;
    found record;
BEGIN
    IF num_nonnulls(job, worker, run, token) < 4 THEN
        PERFORM pulse.refuse_v1('job, worker, run and token',
            'are what the handler was given, and none of them is NULL. A worker that is older than the server has no token.');
    END IF;
    IF NOT EXISTS (
        SELECT
        FROM pulse.cluster_secret AS known
        CROSS JOIN unnest(ARRAY[known.secret, known.previous]) AS valid (secret)
        CROSS JOIN LATERAL (
            SELECT substr(sha256(convert_to('completion:', 'UTF8') || valid.secret || convert_to(worker, 'UTF8')), 1, 16) AS key
        ) AS of_worker
        WHERE token = substr(sha256(of_worker.key || convert_to(format('%s:%s', job, run), 'UTF8')), 1, 16)
    ) THEN
        PERFORM pulse.refuse_v1('token', format(
            'is not that of run %s of job %s in worker %s: it comes with the jobs of the worker, from a server of this database. '
            'If the secret of the queue has been replaced since, roll back: the next attempt has a new one.',
            run, id, worker));
    END IF;
    IF result IS NOT NULL THEN
        most := (SELECT control.max_result_bytes FROM pulse.dispatch_control AS control WHERE control.id = 1);
        IF octet_length(result) > most THEN
            PERFORM pulse.refuse_v1('result', format(
                'has %s bytes; %s are allowed at the most. Store large data elsewhere and return a reference to it, or '
                'raise PULSE_MAX_RESULT of pulsed.', octet_length(result), most));
        END IF;
    END IF;
    -- A job whose id is stamped ahead of the time stays in pulse.jobs, as in jobs/leases.py.
    IF substr(id::text, 15, 1) = '7' AND {stamp_of_id} > clock_timestamp() + interval '30 minutes' THEN
        WITH claim AS (
            SELECT id AS id, worker AS worker_id, NULL::int AS attempt, run AS run, 1 AS place, result AS result
        ),
        {completed_in_place}
        SELECT ended.topic, ended.attempts, ended.ran_seconds INTO found FROM ended;
    ELSE
        WITH claim AS (
            SELECT id AS id, worker AS worker_id, NULL::int AS attempt, run AS run, 1 AS place, result AS result
        ),
        {completed_and_moved}
        SELECT
            completed.topic, completed.attempts, completed.pool, completed.lane_held, completed.steps, completed.workflow_id,
            date_part('epoch', completed.finished_at - completed.started_at) AS ran_seconds
        INTO found
        FROM completed;
        IF found.pool IS NOT NULL THEN
            PERFORM pulse.runs_completed_v1(found.topic, ARRAY[found.pool], ARRAY[found.lane_held]);
        END IF;
        IF found.steps IS NOT NULL THEN
            PERFORM pulse.forget_steps_v1(ARRAY[id]);
        END IF;
        IF found.workflow_id IS NOT NULL THEN
            PERFORM pulse.notice_workflows_v1(ARRAY[id], ARRAY[found.workflow_id]);
        END IF;
    END IF;
    IF found.topic IS NULL THEN
        IF EXISTS (
            SELECT FROM pulse.all_jobs AS known
            WHERE known.id = complete_job.job AND known.status = 'COMPLETED' AND known.finished_by = complete_job.worker
              AND known.run = complete_job.run
        ) THEN
            RAISE EXCEPTION USING ERRCODE = 'PU002', MESSAGE = format(
                'Job %s is completed already, by this very run: an earlier transaction was committed. Roll this one back.', id);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PU001', MESSAGE = format(
            'Job %s is no longer held by run %s of worker %s: its lease ended, or it was canceled. Roll back.', id, run, worker);
    END IF;
    INSERT INTO pulse.arrivals (oldest, jobs, topic, ids, worker_id, attempt, run, ran_seconds)
    VALUES (clock_timestamp(), 1, found.topic, ARRAY[id], worker, found.attempts, run, found.ran_seconds);
END $$;
REVOKE EXECUTE ON FUNCTION pulse.complete_job FROM PUBLIC;
