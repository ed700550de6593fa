-- Notifies the next claim of completed runs of a topic, by the pool of each and the lane that
-- it held, or null. ADR-0064
CREATE OR REPLACE FUNCTION pulse.runs_completed_v1(of_topic text, pools text[], lanes text[])
RETURNS bigint LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    runs bigint;
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT NULL::uuid AS id, of_topic AS topic, 'COMPLETED' AS status, run.pool, run.lane_held
        FROM unnest(pools, lanes) AS run (pool, lane_held)
    ),
    {notices_of_ended}
    SELECT count(*) INTO runs FROM ended;
    RETURN runs;
END $$;
