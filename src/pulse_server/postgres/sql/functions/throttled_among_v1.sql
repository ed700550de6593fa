-- The second look of a statement that inserts throttled jobs, called once after its last row: takes the period of each
-- key, or removes the job that was inserted if the period of another is not over. Returns the ids of those. The row of a
-- key is the lock that racing submits wait for; rows are taken in one order. Each query of a VOLATILE function has a
-- snapshot of its own, and sees what the sessions before it committed.
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
