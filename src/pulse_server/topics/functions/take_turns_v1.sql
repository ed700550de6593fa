-- Takes the next `turns` turns from the head of a topic's line, one entry per lane: its places, the
-- rest of its turn, and its position. First, lanes whose waiting time is over join the end of the
-- line. NULL: the line is empty.
CREATE OR REPLACE FUNCTION pulse.take_turns_v1(
    policy pulse.limit_policies, stamp timestamptz, turns integer,
    OUT lanes text[], OUT places integer[], OUT credits integer[], OUT ids bigint[], OUT spots integer[]
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT array_agg(due.lane), array_agg(due.waiting) INTO lanes, places
    FROM (
        SELECT lane.lane, lane.waiting
        FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.next_at <= stamp
        ORDER BY lane.next_at
        LIMIT 1000
    ) AS due;
    IF lanes IS NOT NULL THEN
        UPDATE pulse.lanes AS lane SET waiting = 0, next_at = NULL WHERE lane.topic = policy.topic AND lane.lane = ANY(lanes);
        PERFORM pulse.line_up_v1(policy.topic, lanes, places);
    END IF;

    -- Lanes after the last taken turn of a row keep their position.
    WITH next AS MATERIALIZED (
        SELECT place.ctid AS tid, cardinality(place.lanes) AS size
        FROM pulse.lane_line AS place
        WHERE place.topic = policy.topic
        ORDER BY place.id, place.place
        LIMIT turns
    ),
    taken AS (
        DELETE FROM pulse.lane_line AS place
        WHERE place.ctid = ANY(ARRAY(
            SELECT counted.tid
            FROM (
                SELECT next.tid, sum(next.size) OVER (ROWS UNBOUNDED PRECEDING) - next.size AS before FROM next
            ) AS counted
            WHERE counted.before < turns
        ))
        RETURNING place.*
    ),
    turn AS MATERIALIZED (
        SELECT
            taken.id, lane.name, taken.places, taken.job_id, lane.credit, (taken.place + lane.place - 1)::int AS spot,
            row_number() OVER (ORDER BY taken.id, taken.place + lane.place) AS number
        FROM taken
        CROSS JOIN LATERAL unnest(taken.lanes, taken.credits) WITH ORDINALITY AS lane (name, credit, place)
    ),
    held AS (
        UPDATE pulse.lanes AS lane
        SET waits_for = lane.waits_for || ARRAY(SELECT turn.job_id FROM turn WHERE turn.name = lane.lane AND turn.job_id IS NOT NULL)
        WHERE policy.ordered AND lane.topic = policy.topic
          AND lane.lane = ANY(ARRAY(SELECT turn.name FROM turn WHERE turn.job_id IS NOT NULL))
    ),
    stayed AS (
        INSERT INTO pulse.lane_line (id, place, topic, lanes, places, credits) OVERRIDING SYSTEM VALUE
        SELECT turn.id, min(turn.spot), policy.topic, array_agg(turn.name ORDER BY turn.number), turn.places,
            CASE WHEN count(turn.credit) > 0 THEN array_agg(turn.credit ORDER BY turn.number) END
        FROM turn
        WHERE turn.number > turns
        GROUP BY turn.id, turn.places
    )
    SELECT
        array_agg(lane.name ORDER BY lane.number), array_agg(lane.places ORDER BY lane.number),
        array_agg(lane.credit ORDER BY lane.number), array_agg(lane.id ORDER BY lane.number),
        array_agg(lane.spot ORDER BY lane.number)
    INTO lanes, places, credits, ids, spots
    FROM (
        SELECT min(turn.number) AS number, turn.name, sum(turn.places)::int AS places, min(turn.id) AS id,
            min(turn.spot) AS spot, sum(turn.credit)::int AS credit
        FROM turn
        WHERE turn.number <= turns
        GROUP BY turn.name
    ) AS lane;
END
$$;
