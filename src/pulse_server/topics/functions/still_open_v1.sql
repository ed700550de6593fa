-- Which of these transactions are still open; of '{}', which are open in the database. Not only those
-- that have inserted jobs: an old snapshot of a stricter isolation level reads the old policy later.
-- A session may have prepared its transaction, which goes on under another name: while one of the
-- transactions belongs to a session, all that are prepared are added.
CREATE OR REPLACE FUNCTION pulse.still_open_v1(older text[]) RETURNS text[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sessions text[];
BEGIN
    sessions := ARRAY(
        SELECT lock.virtualtransaction
        FROM pg_locks AS lock
        LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
        WHERE lock.locktype = 'virtualxid' AND lock.granted AND lock.pid <> pg_backend_pid()
          AND (session.pid IS NULL OR session.datname = current_database())
          AND (older = '{}' OR lock.virtualtransaction = ANY(older)));
    -- After the sessions: one that prepares its transaction now is found in one of the two.
    RETURN sessions || ARRAY(
        SELECT 'prepared ' || given.transaction
        FROM pg_prepared_xacts AS given
        WHERE given.database = current_database()
          AND (older = '{}' OR 'prepared ' || given.transaction = ANY(older)
               OR EXISTS (SELECT FROM unnest(older) AS name WHERE name NOT LIKE 'prepared %')));
END
$$;
