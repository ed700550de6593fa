-- Keeps a row that another session has locked from delaying others. No statement changes a job. ADR-0042

-- name: lock_free_jobs
-- Whatever its state, a job that no other session has locked: it stays so until the transaction ends, and the
-- statement that follows waits for none of them. Locked as an update locks, so that a reference to the job from
-- another table is no obstacle.
WITH free AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
    ORDER BY job.id
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT free.id FROM free
UNION ALL
-- No statement changes these.
SELECT done.id FROM pulse.completed_jobs AS done WHERE done.id = ANY($1::uuid[]);

-- name: lock_deletable_jobs
-- The same for a delete, which waits for a reference from another table too.
WITH free AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
),
free_completed AS MATERIALIZED (
    SELECT done.id
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY($1::uuid[])
    ORDER BY done.id
    FOR UPDATE SKIP LOCKED
)
SELECT free.id FROM free
UNION ALL
SELECT free_completed.id FROM free_completed;

-- name: spare_workers
-- reap_expired leaves the jobs of these workers alone for as long as a beat that is stored now would have
-- kept them. Those that are spared no longer are forgotten, unless another server is at it. A worker whose row here is
-- locked is passed over: by another server, which spares it too, or by a session that must not harm the others.
WITH over AS MATERIALIZED (
    SELECT spared.worker_id
    FROM pulse.spared_workers AS spared
    WHERE spared.spared_until < now() AND spared.worker_id <> ALL ($1::text[])
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
),
forgotten AS (
    DELETE FROM pulse.spared_workers AS spared USING over WHERE spared.worker_id = over.worker_id
),
free AS MATERIALIZED (
    SELECT spared.worker_id
    FROM pulse.spared_workers AS spared
    WHERE spared.worker_id = ANY ($1::text[])
    ORDER BY spared.worker_id
    FOR UPDATE SKIP LOCKED
)
INSERT INTO pulse.spared_workers AS spared (worker_id, spared_until)
SELECT new.worker_id, clock_timestamp() + $2::interval
FROM unnest($1::text[]) AS new (worker_id)
WHERE EXISTS (SELECT FROM free WHERE free.worker_id = new.worker_id)
   OR NOT EXISTS (SELECT FROM pulse.spared_workers AS known WHERE known.worker_id = new.worker_id)
ON CONFLICT (worker_id) DO UPDATE SET spared_until = GREATEST(spared.spared_until, excluded.spared_until);
