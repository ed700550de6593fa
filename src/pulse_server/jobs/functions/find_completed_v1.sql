-- The completed job that has the id or the key of a new one: its id, and whether the submit of the
-- new job made it. The look runs in a subtransaction that is always rolled back, so that its locks
-- go with it: the transaction of an application would hold one for each partition of completed_jobs
-- and each index until its end, and no day could be added or dropped. ADR-0075   of_id: NULL if the
-- caller gave no id. since: it finished at this moment or later; NULL: at any time.
CREATE OR REPLACE FUNCTION pulse.find_completed_v1(
    of_id uuid, of_topic text, of_key text, of_payload bytea, of_unique_key text, since timestamptz,
    OUT known_id uuid, OUT is_same boolean, OUT has_id boolean
) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF of_id IS NOT NULL THEN
        SELECT known.id, {repeats_submit}, true INTO known_id, is_same, has_id
        FROM (SELECT of_topic AS topic, of_payload AS payload, of_unique_key AS unique_key) AS new
        CROSS JOIN pulse.completed_jobs AS known
        WHERE known.id = of_id AND known.finished_at >= COALESCE(since, '-infinity');
    END IF;
    IF of_key IS NOT NULL AND known_id IS NULL THEN
        SELECT known.id, {repeats_submit}, false INTO known_id, is_same, has_id
        FROM (SELECT of_topic AS topic, of_payload AS payload, of_unique_key AS unique_key) AS new
        CROSS JOIN pulse.completed_jobs AS known
        WHERE known.topic = of_topic AND known.idempotency_key = of_key;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'PU000';
EXCEPTION WHEN SQLSTATE 'PU000' THEN
    RETURN;
END $$;
