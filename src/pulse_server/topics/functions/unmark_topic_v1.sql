-- Makes a topic plain again that was marked for a first limit and did not get it: the mark of this
-- call, or any mark if :mark is NULL. Returns whether it did.
CREATE OR REPLACE FUNCTION pulse.unmark_topic_v1(of_topic text, mark xid) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pulse.barred_topics AS barred
    WHERE barred.topic = of_topic AND barred.limited AND barred.xmin = COALESCE(mark, barred.xmin)
    FOR UPDATE;
    -- With a new snapshot, behind the lock: the limit may have come into force.
    IF NOT FOUND OR EXISTS (SELECT FROM pulse.limit_policies AS known WHERE known.topic = of_topic) THEN
        RETURN false;
    END IF;
    DELETE FROM pulse.barred_topics AS barred WHERE barred.topic = of_topic AND NOT barred.paused;
    UPDATE pulse.barred_topics AS barred SET limited = false WHERE barred.topic = of_topic;
    RETURN true;
END
$$;
