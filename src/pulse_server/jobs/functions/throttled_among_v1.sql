-- Called once after the last row of a statement that inserts throttled jobs. Takes the period of
-- each key, or deletes the new job if the period of another job is not over. Returns the ids of the
-- deleted jobs. Racing submits wait for the row of the key as a lock; rows are locked in one order.
-- Each query of a VOLATILE function takes a new snapshot, and sees the commits of the sessions
-- before it.
CREATE OR REPLACE FUNCTION pulse.throttled_among_v1(new_ids uuid[], new_topics text[], new_keys text[], periods interval[])
RETURNS uuid[] LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new    record;
    refused uuid[] := '{}';
BEGIN
    FOR new IN
        SELECT given.*
        FROM unnest(new_ids, new_topics, new_keys, periods) AS given (id, topic, key, period)
        ORDER BY given.topic, given.key, given.id
    LOOP
        INSERT INTO pulse.unique_periods AS known (topic, key, until, job_id)
        VALUES (new.topic, new.key, clock_timestamp() + new.period, new.id)
        ON CONFLICT (topic, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
            WHERE known.until <= clock_timestamp();
        IF NOT FOUND THEN
            refused := refused || new.id;
        END IF;
    END LOOP;
    DELETE FROM pulse.jobs AS job WHERE job.id = ANY(refused);
    RETURN refused;
END $$;
