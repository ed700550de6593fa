-- Compares the counts with the running jobs. They always agree, because one statement changes both.
-- Counts that differ were changed by hand, and are corrected. Returns the number of corrected
-- pools and lanes.
CREATE OR REPLACE FUNCTION pulse.sweep_limits_v1() RETURNS TABLE (pools integer, lanes integer) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong record;
BEGIN
    pools := 0;
    lanes := 0;
    FOR wrong IN
        SELECT counted.name
        FROM (
            SELECT known.name, known.held FROM pulse.pools AS known
            UNION ALL
            SELECT run.pool, -1 FROM pulse.limited_runs AS run
            UNION ALL
            SELECT notice.pool, -notice.ended FROM pulse.limit_notices AS notice
        ) AS counted
        GROUP BY counted.name
        HAVING sum(counted.held) <> 0 AND EXISTS (SELECT FROM pulse.pools AS known WHERE known.name = counted.name)
        ORDER BY counted.name
    LOOP
        PERFORM FROM pulse.pools AS known WHERE known.name = wrong.name FOR NO KEY UPDATE;
        PERFORM pulse.count_runs_v1(wrong.name);
        pools := pools + 1;
    END LOOP;
    FOR wrong IN
        SELECT policy, count(*) AS lanes
        FROM (
            SELECT counted.topic, counted.lane
            FROM (
                SELECT known.topic, known.lane, known.held - known.waiting AS held FROM pulse.lanes AS known
                UNION ALL
                SELECT run.topic, run.lane_held, -1 FROM pulse.limited_runs AS run WHERE run.lane_held IS NOT NULL
                UNION ALL
                SELECT place.topic, lane.name, -place.places
                FROM pulse.lane_line AS place
                CROSS JOIN LATERAL unnest(place.lanes) AS lane (name)
            ) AS counted
            GROUP BY counted.topic, counted.lane
            HAVING sum(counted.held) <> 0
        ) AS differing
        JOIN pulse.limit_policies AS policy ON policy.topic = differing.topic AND policy.laned
        GROUP BY policy
    LOOP
        PERFORM FROM pulse.pools AS known WHERE known.name = (wrong.policy).pool FOR NO KEY UPDATE;
        PERFORM pulse.count_lanes_v1(wrong.policy);
        lanes := lanes + wrong.lanes;
    END LOOP;
    -- A rate has room again within its period, the margin and a slice. If not, the clock was set
    -- back.
    UPDATE pulse.lanes AS lane
    SET next_at = clock_timestamp()
    FROM pulse.limit_policies AS policy
    WHERE policy.topic = lane.topic AND lane.waits_for IS NULL
      AND lane.next_at > clock_timestamp() + COALESCE(policy.lane_period * 1.2, interval '0') + interval '1 second';
    UPDATE pulse.limit_policies AS policy
    SET shrinks = false
    WHERE policy.shrinks AND NOT EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.lane <> '' AND lane.held > pulse.places_of_v1(policy, lane.limit));
    RETURN NEXT;
END
$$;
