-- Whether this transaction does the task, which one session at a time does. It has the task until it
-- ends. Another session does not wait for it, except for 50 ms while a transaction that makes the row is open.
CREATE OR REPLACE FUNCTION pulse.try_lock_v1(task text) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM FROM pulse.locks AS lock WHERE lock.name = task FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    INSERT INTO pulse.locks (name) VALUES (task) ON CONFLICT DO NOTHING;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
