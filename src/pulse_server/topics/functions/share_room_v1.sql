-- How many jobs each lane with a turn may give now. `quantum`: the jobs of a turn, times the weight
-- of the lane. `is_whole_line`: the line has no other lanes.
--   shares: the most jobs to give    begun: jobs of the turns that the lane has begun
--   late: the lane has begun one turn more than the lanes behind it
--   waits: the only job that the lane may give    holds: that job is tried again and holds its lane
CREATE OR REPLACE FUNCTION pulse.share_room_v1(
    policy pulse.limit_policies, stamp timestamptz, room integer, quantum integer, is_whole_line boolean,
    lanes text[], places integer[], credits integer[],
    OUT shares integer[], OUT begun integer[], OUT late boolean[], OUT waits uuid[], OUT holds boolean[]
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The places alone decide for lanes that have only a limit. Other lanes have to be looked up.
    IF policy.per_lane IS NOT NULL AND policy.lane_starts IS NULL AND NOT policy.shrinks AND NOT policy.ordered THEN
        shares := ARRAY(SELECT LEAST(turn.places, room) FROM unnest(places) WITH ORDINALITY AS turn (places, number) ORDER BY turn.number);
        RETURN;
    END IF;
    WITH lane AS (
        SELECT
            turn.number, job.id AS waits_for, job.holds, COALESCE(known.weight, 1) * quantum AS turn,
            CASE
                WHEN NOT job.may_start THEN 0
                WHEN policy.per_lane IS NULL THEN COALESCE(turn.credit, COALESCE(known.weight, 1) * quantum)
                WHEN turn.lane = '' THEN known.weight * ((room + cardinality(lanes) - 1) / cardinality(lanes))
                ELSE turn.places - GREATEST(0, known.held - pulse.places_of_v1(policy, known.limit))
            END AS begun,
            CASE WHEN policy.lane_starts IS NOT NULL AND turn.lane <> '' THEN policy.lane_starts - pulse.slices_sum_v1(
                pulse.slices_at_v1(known.slices, known.slice, pulse.slice_of_v1(stamp, policy.lane_period, known.slice)))
            END AS rate_left
        FROM unnest(lanes, places, credits) WITH ORDINALITY AS turn (lane, places, credit, number)
        LEFT JOIN LATERAL (
            SELECT * FROM pulse.lanes AS lane WHERE lane.topic = policy.topic AND lane.lane = turn.lane LIMIT 1
        ) AS known ON true
        LEFT JOIN LATERAL (
            SELECT next.*
            FROM pulse.next_in_order_v1(policy, turn.lane, known.waits_for) AS next
            WHERE policy.ordered AND turn.lane <> ''
            LIMIT 1     -- else it is called for the lanes of all policies
        ) AS job ON true
    ),
    -- The turns that have begun. If the whole line has a turn and room is left, all lanes get
    -- further rounds.
    line AS (
        SELECT
            lane.*, sum(lane.turn) OVER () AS round,
            sum(lane.turn) OVER (ORDER BY lane.number ROWS UNBOUNDED PRECEDING) - lane.turn AS before,
            CASE WHEN policy.per_lane IS NULL AND is_whole_line
                THEN GREATEST(0, room - sum(lane.begun) OVER ())
                ELSE 0
            END AS spare
        FROM lane
    ),
    -- The last round begins with the first lanes.
    shared AS (
        SELECT
            line.*, line.begun + line.spare / line.round * line.turn AS whole,
            GREATEST(0, LEAST(line.turn, line.spare % line.round - line.before)) AS part
        FROM line
    )
    SELECT
        array_agg(GREATEST(0, LEAST(shared.whole + shared.part, shared.rate_left))::int ORDER BY shared.number),
        array_agg((shared.whole + CASE WHEN shared.part > 0 THEN shared.turn ELSE 0 END)::int ORDER BY shared.number),
        array_agg(shared.part > 0 ORDER BY shared.number),
        array_agg(shared.waits_for ORDER BY shared.number), array_agg(shared.holds ORDER BY shared.number)
    INTO shares, begun, late, waits, holds
    FROM shared;
END
$$;
