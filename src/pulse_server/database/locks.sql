-- Who holds the lock that a statement met.

-- name: lock_holders(held_ms, tables)
-- Sessions that have held a lock on one of our tables for longer than :held_ms ms. Only tables like :tables
-- count. Locks of readers count for the tables of completed jobs alone: there they keep a day from
-- being attached or dropped. Of the locks of tasks those of sessions that lock rows count. The state and times of other roles' sessions are visible only to a member of
-- pg_read_all_stats. A session with a state and no transaction has ended it since its lock was read.
SELECT
    lock.pid, session.usename::text AS user, session.application_name AS application, session.state,
    class.oid::regclass::text AS table, lock.mode AS lock,
    date_part('epoch', clock_timestamp() - session.xact_start) AS seconds
FROM pg_locks AS lock
JOIN pg_class AS class ON class.oid = lock.relation AND class.relnamespace = 'pulse'::regnamespace
LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
WHERE lock.locktype = 'relation' AND lock.granted AND class.relname LIKE :tables::text
  AND (:tables LIKE 'completed\_jobs%' OR lock.mode <> 'AccessShareLock' AND (:tables = 'locks' OR lock.mode <> 'RowShareLock'))
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND class.relkind IN ('r', 'p')
  AND lock.pid <> pg_backend_pid()
  AND (session.state IS NULL OR session.xact_start < clock_timestamp() - :held_ms::int * interval '1 ms')
ORDER BY lock.mode = 'AccessExclusiveLock' DESC, session.xact_start, class.relname
LIMIT 1;

-- name: blockers_of(pid)
-- The sessions that keep the session :pid waiting, in words; NULL if none does. Sessions that wait
-- themselves, ahead of it, are left out for the ones that they wait for.
WITH RECURSIVE ahead (pid) AS (
    SELECT unnest(pg_blocking_pids(:pid::int))
    UNION
    SELECT unnest(pg_blocking_pids(ahead.pid)) FROM ahead WHERE ahead.pid > 0
),
first AS (
    SELECT ahead.pid FROM ahead WHERE ahead.pid = 0 OR cardinality(pg_blocking_pids(ahead.pid)) = 0 LIMIT 3
)
SELECT string_agg({session_in_words}, '; ' ORDER BY first.pid) AS blockers
FROM first
LEFT JOIN pg_stat_activity AS session ON session.pid = first.pid
WHERE first.pid = 0 OR session.pid IS NOT NULL;
