-- Applies changed limits to the lanes, with their pool locked. Lanes with free places open in
-- the next claim, and lanes with too many places give them back. of_lane NULL: all lanes.
CREATE OR REPLACE FUNCTION pulse.limits_of_lanes_changed_v1(policy pulse.limit_policies, of_lane text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pulse.notice_lanes_v1(policy, ARRAY(
        SELECT lane.lane
        FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND (of_lane IS NULL OR lane.lane = of_lane) AND lane.lane <> ''
          AND lane.held > 0 AND lane.held < pulse.places_of_v1(policy, lane.limit)
    ));
    UPDATE pulse.limit_policies AS known
    SET shrinks = true
    WHERE known.topic = policy.topic AND NOT known.shrinks AND known.per_lane IS NOT NULL AND EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND (of_lane IS NULL OR lane.lane = of_lane) AND lane.lane <> ''
          AND lane.held > pulse.places_of_v1(policy, lane.limit));
END
$$;
