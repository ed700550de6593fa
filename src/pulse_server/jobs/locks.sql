-- Keeps a locked row of another session from delaying other jobs. No statement changes a job.
-- ADR-0042

-- name: lock_free_jobs(ids)
-- Locks the jobs that no other session has locked, whatever their state. They stay locked until the
-- transaction ends, so the next statement waits for none. The lock is as strong as an update's: a
-- reference to the job from another table does not conflict.
WITH free AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[])
    ORDER BY job.id
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT free.id FROM free
UNION ALL
-- No statement changes completed jobs.
SELECT done.id FROM pulse.completed_jobs AS done WHERE done.id = ANY(:ids::uuid[]);

-- name: lock_deletable_jobs(ids)
-- lock_free_jobs for a delete, which also waits for a reference from another table.
WITH free AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[])
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
free_completed AS MATERIALIZED (
    SELECT done.id
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(:ids::uuid[])
    ORDER BY done.id
    FOR UPDATE SKIP LOCKED
)
SELECT free.id FROM free
UNION ALL
SELECT free_completed.id FROM free_completed;

-- name: lock_tables_of_jobs
-- Waits for a session that changes a table of every submit. The partitions are not locked.
LOCK TABLE ONLY pulse.jobs, ONLY pulse.completed_jobs IN ROW EXCLUSIVE MODE;

-- name: wait_no_longer(wait_ms)
-- For the rest of the transaction, a wait for a lock ends after :wait_ms ms. Each plan is made for the
-- values of its parameters, so it locks only the days of completed jobs that it reads. Returns the
-- time.
SELECT clock_timestamp(), set_config('lock_timeout', :wait_ms::text, true), set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: obstacles_to(ids, topics, keys, unique_keys, unique_scopes)
SELECT pulse.obstacles_to_v1(:ids::uuid[], :topics::text[], :keys::text[], :unique_keys::text[], :unique_scopes::text[]) AS obstacles;

-- name: spare_workers(workers, lease)
-- Keeps reap_expired from reaping the jobs of these workers, for as long as a heartbeat stored now
-- would extend their leases. Expired entries are deleted, unless another server has locked them. A
-- worker whose row is locked is skipped: another server spares it too, or a session must not block
-- the other workers.
WITH over AS MATERIALIZED (
    SELECT spared.worker_id
    FROM pulse.spared_workers AS spared
    WHERE spared.spared_until < now() AND spared.worker_id <> ALL (:workers::text[])
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
),
forgotten AS (
    DELETE FROM pulse.spared_workers AS spared USING over WHERE spared.worker_id = ANY(ARRAY[over.worker_id])
),
free AS MATERIALIZED (
    SELECT spared.worker_id
    FROM pulse.spared_workers AS spared
    WHERE spared.worker_id = ANY (:workers::text[])
    ORDER BY spared.worker_id
    FOR UPDATE SKIP LOCKED
)
INSERT INTO pulse.spared_workers AS spared (worker_id, spared_until)
SELECT new.worker_id, clock_timestamp() + :lease::interval
FROM unnest(:workers::text[]) AS new (worker_id)
WHERE EXISTS (SELECT FROM free WHERE free.worker_id = new.worker_id)
   OR NOT EXISTS (SELECT FROM pulse.spared_workers AS known WHERE known.worker_id = new.worker_id)
ON CONFLICT (worker_id) DO UPDATE SET spared_until = GREATEST(spared.spared_until, excluded.spared_until);
