-- Recounts the places of a topic's lanes, with its pool locked: after a change of their
-- limits, or after a change by hand. One statement, so that no place is missed or counted twice.
CREATE OR REPLACE FUNCTION pulse.count_lanes_v1(policy pulse.limit_policies) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH emptied AS (
        DELETE FROM pulse.lane_line AS place WHERE place.topic = policy.topic RETURNING place.lanes, place.job_id
    )
    INSERT INTO pulse.lanes AS known (topic, lane, held, waits_for)
    SELECT policy.topic, counted.lane, sum(counted.held), array_agg(counted.job_id) FILTER (WHERE counted.job_id IS NOT NULL)
    FROM (
        SELECT run.lane_held AS lane, 1 AS held, NULL::uuid AS job_id
        FROM pulse.limited_runs AS run
        WHERE run.topic = policy.topic AND run.lane_held IS NOT NULL
        UNION ALL
        SELECT lane.lane, 0, NULL FROM pulse.lanes AS lane WHERE lane.topic = policy.topic
        UNION ALL
        -- The job is tried again, and no other job of its lane may pass it.
        SELECT emptied.lanes[1], 0, emptied.job_id FROM emptied WHERE policy.ordered AND emptied.job_id IS NOT NULL
    ) AS counted
    GROUP BY counted.lane
    ON CONFLICT (topic, lane) DO UPDATE
    SET held = EXCLUDED.held, waiting = 0, next_at = NULL, waits_for = known.waits_for || EXCLUDED.waits_for;
    PERFORM pulse.notice_lanes_v1(policy, ARRAY(SELECT lane.lane FROM pulse.lanes AS lane WHERE lane.topic = policy.topic));
    UPDATE pulse.limit_policies AS known
    SET shrinks = known.per_lane IS NOT NULL AND EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.lane <> '' AND lane.held > pulse.places_of_v1(policy, lane.limit))
    WHERE known.topic = policy.topic;
END
$$;
