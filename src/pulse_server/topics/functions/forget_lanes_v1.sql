-- Deletes lanes without settings that have been unused for an hour, and longer than the period of
-- their rate. Returns their number.
CREATE OR REPLACE FUNCTION pulse.forget_lanes_v1(most integer) RETURNS bigint LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH idle AS MATERIALIZED (
        SELECT lane.ctid AS tid
        FROM pulse.lanes AS lane
        LEFT JOIN pulse.limit_policies AS policy ON policy.topic = ANY(ARRAY[lane.topic])
        WHERE lane.held = 0 AND lane.weight = 1 AND lane.limit IS NULL
          AND lane.used_at < now() - GREATEST(interval '1 hour', policy.lane_period * 1.2)
        LIMIT most
        FOR UPDATE OF lane SKIP LOCKED
    ),
    forgotten AS (
        DELETE FROM pulse.lanes AS lane USING idle WHERE lane.ctid = idle.tid RETURNING lane.topic
    )
    SELECT count(*) FROM forgotten
$$;
