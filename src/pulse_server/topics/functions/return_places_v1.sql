-- Returns unused places of the lanes in hand. They wait, go to the end of the line, stay at its
-- head with the rest of their turn, or are no longer in use. Returns whether the next claim may
-- find something.
--   begun, late, waits, holds: from share_room
--   locked, picked: the number of locked and of picked jobs per lane
--   cut_at: the lane at which the room of the claim ended; NULL: it did not end
CREATE OR REPLACE FUNCTION pulse.return_places_v1(
    policy pulse.limit_policies, stamp timestamptz, lanes text[], places integer[], ids bigint[], spots integer[],
    shares integer[], begun integer[], late boolean[], waits uuid[], holds boolean[], locked integer[], picked integer[], cut_at integer
) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    has_more boolean;
    lined_up text[];
    free     integer[];
BEGIN
    IF places = picked AND '' <> ALL(lanes) AND policy.per_lane IS NOT NULL
        AND policy.lane_starts IS NULL AND NOT policy.ordered AND NOT policy.shrinks
    THEN
        RETURN true;    -- all places were used
    END IF;
    WITH lane AS MATERIALIZED (
        SELECT
            turn.*,
            CASE WHEN policy.per_lane IS NULL OR turn.lane = '' THEN turn.places ELSE turn.places - turn.picked END AS rest,
            CASE
                -- One place stands for a turn. Further places are from when the lane had a limit.
                WHEN policy.per_lane IS NULL OR turn.lane = '' THEN turn.places - 1
                WHEN policy.shrinks AND turn.lane <> ''
                THEN LEAST(turn.places, GREATEST(0, known.held - pulse.places_of_v1(policy, known.limit)))
                ELSE 0
            END AS surplus,
            -- A lane that ran out of jobs before the room ended has had its turn.
            CASE
                WHEN policy.per_lane IS NOT NULL OR turn.picked < turn.share AND (cut_at IS NULL OR turn.number < cut_at) THEN 0
                ELSE turn.begun - turn.picked
            END AS credit,
            CASE WHEN policy.lane_starts IS NOT NULL
                THEN pulse.slice_of_v1(stamp, policy.lane_period, known.slice)
            END AS slice,
            CASE WHEN policy.lane_starts IS NOT NULL THEN pulse.slices_with_v1(
                pulse.slices_at_v1(known.slices, known.slice, pulse.slice_of_v1(stamp, policy.lane_period, known.slice)), turn.picked
            ) END AS slices
        FROM unnest(lanes, places, waits, holds, locked, picked, ids, spots, shares, begun, late) WITH ORDINALITY
            AS turn (lane, places, waits_for, holds, locked, picked, id, spot, share, begun, late, number)
        LEFT JOIN LATERAL (
            SELECT *
            FROM pulse.lanes AS lane
            WHERE lane.topic = policy.topic AND lane.lane = turn.lane
              AND (policy.shrinks OR policy.lane_starts IS NOT NULL)
            LIMIT 1
        ) AS known ON true
        WHERE policy.per_lane IS NULL OR turn.lane = '' OR turn.picked < turn.places
           OR policy.lane_starts IS NOT NULL OR policy.ordered
    ),
    unused AS MATERIALIZED (
        SELECT
            lane.*,
            CASE
                WHEN lane.rest <= lane.surplus THEN NULL
                WHEN lane.waits_for IS NOT NULL AND lane.locked = 0 THEN (
                    SELECT GREATEST(job.next_run_at, stamp + interval '100 milliseconds')
                    FROM pulse.jobs AS job
                    WHERE job.id = lane.waits_for
                )
                WHEN policy.lane_starts IS NOT NULL AND lane.lane <> '' AND policy.lane_starts <= pulse.slices_sum_v1(lane.slices)
                THEN pulse.slices_free_at_v1(lane.slices, lane.slice, policy.lane_period)
            END AS waits_until,
            -- Even if every lockable job was taken, the lane may have a job that another session
            -- has locked.
            CASE WHEN lane.rest > lane.surplus THEN lane.locked > lane.picked OR (
                SELECT count(*)
                FROM (
                    SELECT FROM pulse.jobs AS job
                    WHERE job.topic = policy.topic AND job.lane = lane.lane AND {stands_in_lane}
                    ORDER BY {lane_order}
                    LIMIT lane.picked + 1
                ) AS job
            ) > lane.picked ELSE false END AS has_work
        FROM lane
    ),
    written AS (
        INSERT INTO pulse.lanes AS known (topic, lane, held, waiting, next_at, waits_for, slice, slices)
        SELECT
            policy.topic, unused.lane,
            CASE
                WHEN unused.has_work OR unused.waits_until IS NOT NULL THEN -LEAST(unused.rest, unused.surplus)
                ELSE -unused.rest
            END,
            CASE WHEN unused.waits_until IS NOT NULL THEN unused.rest - unused.surplus ELSE 0 END,
            unused.waits_until,
            CASE WHEN unused.picked > 0 AND unused.holds THEN ARRAY[unused.waits_for] END,   -- removed below
            COALESCE(unused.slice, 0), COALESCE(unused.slices, '{}')
        FROM unused
        WHERE NOT unused.has_work OR unused.waits_until IS NOT NULL OR unused.surplus > 0
           OR policy.lane_starts IS NOT NULL OR policy.ordered
        ON CONFLICT (topic, lane) DO UPDATE
        SET held = known.held + EXCLUDED.held,
            waiting = known.waiting + EXCLUDED.waiting,
            next_at = COALESCE(EXCLUDED.next_at, known.next_at),
            waits_for = CASE WHEN policy.ordered AND known.waits_for IS NOT NULL THEN (
                SELECT array_agg(job.id)
                FROM pulse.jobs AS job
                WHERE job.id = ANY(known.waits_for) AND job.id <> ALL(COALESCE(EXCLUDED.waits_for, '{}'))
                  AND job.finished_at IS NULL
            ) END,
            slice = CASE WHEN policy.lane_starts IS NULL THEN known.slice ELSE EXCLUDED.slice END,
            slices = CASE WHEN policy.lane_starts IS NULL THEN known.slices ELSE EXCLUDED.slices END,
            used_at = EXCLUDED.used_at
    ),
    rested AS (
        INSERT INTO pulse.lane_line (id, place, topic, lanes, places, credits) OVERRIDING SYSTEM VALUE
        SELECT unused.id, min(unused.spot), policy.topic, array_agg(unused.lane ORDER BY unused.number), 1,
            array_agg(unused.credit ORDER BY unused.number)
        FROM unused
        WHERE unused.has_work AND unused.waits_until IS NULL AND unused.credit > 0
        GROUP BY unused.id
    )
    SELECT
        COALESCE(bool_or(NOT unused.has_work AND unused.waits_until IS NULL), false),
        array_agg(unused.lane ORDER BY unused.late, unused.number)
            FILTER (WHERE unused.has_work AND unused.waits_until IS NULL AND unused.credit = 0),
        array_agg(unused.rest - unused.surplus ORDER BY unused.late, unused.number)
            FILTER (WHERE unused.has_work AND unused.waits_until IS NULL AND unused.credit = 0)
    INTO has_more, lined_up, free
    FROM unused;
    IF lined_up IS NOT NULL THEN
        PERFORM pulse.line_up_v1(policy.topic, lined_up, free);
    END IF;
    -- If this claim could lock no job, the next may not either: another session may have them.
    RETURN has_more OR 0 < ANY(locked);
END
$$;
