-- Takes jobs out of their lanes again, for a topic that has no lanes any more.
CREATE OR REPLACE FUNCTION pulse.leave_lanes_v1(of_topic text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pulse.jobs AS job
    SET tier = NULL, rank_at = NULL
    WHERE job.ctid = ANY(ARRAY(
        SELECT job.ctid
        FROM pulse.jobs AS job
        WHERE job.topic = of_topic AND {stands_in_lane}
        ORDER BY job.lane, {lane_order}
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ))
$$;
