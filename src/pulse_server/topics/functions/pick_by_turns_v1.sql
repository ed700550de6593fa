-- Picks and locks the next jobs of a topic with lanes, for the places at the head of the line. A
-- lane without a limit has one place, which stands for its turn. A turn gives a quantum of jobs,
-- times the weight of the lane, and then goes to the end of the line. If `room` ends before the
-- turn does, the lane stays at the head with the rest, which the next claims take first. So lanes
-- start jobs by their weights, whatever the room of each claim. If there is room for a turn of
-- every lane in the line, there are further rounds of turns. has_more: a lane could have given
-- more.
CREATE OR REPLACE FUNCTION pulse.pick_by_turns_v1(
    policy pulse.limit_policies, stamp timestamptz, room integer, most_bytes bigint,
    OUT tids tid[], OUT confirmed boolean[], OUT bytes bigint, OUT has_more boolean
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A turn costs as much as a job. So it gives several jobs where a claim has many slots and
    -- there are many lanes.
    quantum integer := CASE WHEN room < 64 THEN 1 ELSE 4 END;
    turns  integer := CASE WHEN policy.per_lane IS NULL THEN (room + quantum - 1) / quantum ELSE room END;
    hand   record;      -- the lanes with a turn
    shared record;      -- the share of each lane
    locked integer[];   -- the number of locked jobs per lane
    picked integer[];   -- the number of picked jobs per lane
    owners integer[];   -- per job: the index of its lane in `hand`
    owner  integer;
    jobs   integer;     -- how many jobs fit into the bytes
    cut_at integer;     -- the lane at which the room or the bytes ended
BEGIN
    SELECT * INTO hand FROM pulse.take_turns_v1(policy, stamp, turns);
    IF hand.lanes IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO shared
    FROM pulse.share_room_v1(
        policy, stamp, room, CASE WHEN cardinality(hand.lanes) < turns THEN 1 ELSE quantum END, cardinality(hand.lanes) < turns,
        hand.lanes, hand.places, hand.credits);

    -- A nested loop in the order of the line: nothing is sorted or joined, though there may be a thousand lanes.
    WITH line AS MATERIALIZED (
        SELECT turn.number::int, job.*
        FROM unnest(hand.lanes, shared.shares, shared.waits) WITH ORDINALITY AS turn (lane, share, waits_for, number)
        CROSS JOIN LATERAL (
            SELECT {claimable}
            FROM pulse.jobs AS job
            WHERE job.topic = policy.topic AND job.lane = turn.lane AND {stands_in_lane} AND {may_start}
              AND (turn.waits_for IS NULL OR job.id = turn.waits_for)
            ORDER BY {lane_order}
            LIMIT turn.share
            FOR UPDATE OF job SKIP LOCKED
        ) AS job
        LIMIT room
    ),
    dealt AS (
        SELECT line.*, sum(line.bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_so_far FROM line
    )
    SELECT
        array_agg(dealt.tid), array_agg(dealt.must_confirm), array_agg(dealt.number),
        -- The first job is always picked.
        GREATEST(1, count(*) FILTER (WHERE dealt.bytes_so_far - dealt.bytes < most_bytes)),
        GREATEST(min(dealt.bytes_so_far), sum(dealt.bytes) FILTER (WHERE dealt.bytes_so_far - dealt.bytes < most_bytes))
    INTO tids, confirmed, owners, jobs, bytes
    FROM dealt;
    locked := array_fill(0, ARRAY[cardinality(hand.lanes)]);
    picked := locked;
    FOR place IN 1 .. COALESCE(cardinality(owners), 0) LOOP
        owner := owners[place];
        locked[owner] := locked[owner] + 1;
        IF place <= jobs THEN
            picked[owner] := picked[owner] + 1;
        END IF;
    END LOOP;
    IF cardinality(owners) = room OR jobs < cardinality(owners) THEN
        cut_at := owners[jobs];
    END IF;
    IF jobs < cardinality(owners) THEN
        tids := tids[1:jobs];
        confirmed := confirmed[1:jobs];
    END IF;

    has_more := pulse.return_places_v1(
        policy, stamp, hand.lanes, hand.places, hand.ids, hand.spots,
        shared.shares, shared.begun, shared.late, shared.waits, shared.holds, locked, picked, cut_at
    ) AND EXISTS (SELECT FROM pulse.lane_line AS next WHERE next.topic = policy.topic);
END
$$;
