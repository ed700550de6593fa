-- Puts the free places of lanes with work into the line. All places of a new lane are free.
CREATE OR REPLACE FUNCTION pulse.open_lanes_v1(policy pulse.limit_policies, names text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened text[];
    places integer[];
    is_new boolean[];
BEGIN
    -- Looked up one by one, and written by upserts: a planner that expects few lanes would compare
    -- each with each.
    SELECT array_agg(lane.name), array_agg(lane.places - lane.held), array_agg(lane.is_new)
    INTO opened, places, is_new
    FROM (
        SELECT
            asked.name, COALESCE(known.held, 0) AS held, known.held IS NULL AS is_new,
            -- As places_of, which takes as long as the look-up.
            CASE
                WHEN asked.name = '' OR policy.per_lane IS NULL THEN 1
                WHEN policy.ordered THEN policy.per_lane
                ELSE COALESCE(known.limit, policy.per_lane)
            END AS places
        FROM unnest(names) AS asked (name)
        LEFT JOIN LATERAL (
            SELECT lane.held, lane.limit
            FROM pulse.lanes AS lane
            WHERE lane.topic = policy.topic AND lane.lane = asked.name
            LIMIT 1
        ) AS known ON true
    ) AS lane
    WHERE lane.held < lane.places;
    IF opened IS NOT NULL THEN
        -- No other session makes lanes of this topic at the same time, but one may delete them. The
        -- look for conflicts costs as much as the row.
        IF true = ANY(is_new) THEN
            INSERT INTO pulse.lanes (topic, lane, held)
            SELECT policy.topic, lane.name, lane.places
            FROM unnest(opened, places, is_new) AS lane (name, places, is_new)
            WHERE lane.is_new;
        END IF;
        IF false = ANY(is_new) THEN
            INSERT INTO pulse.lanes AS known (topic, lane, held)
            SELECT policy.topic, lane.name, lane.places
            FROM unnest(opened, places, is_new) AS lane (name, places, is_new)
            WHERE NOT lane.is_new
            ON CONFLICT (topic, lane) DO UPDATE SET held = known.held + EXCLUDED.held, used_at = EXCLUDED.used_at;
        END IF;
        IF cardinality(opened) = 1 THEN
            INSERT INTO pulse.lane_line (topic, lanes, places) VALUES (policy.topic, opened, places[1]);
        ELSE
            PERFORM pulse.line_up_v1(policy.topic, opened, places);
        END IF;
    END IF;
    IF policy.ordered THEN
        -- A job that a lane waited for was canceled.
        UPDATE pulse.lanes AS lane
        SET next_at = clock_timestamp()
        WHERE lane.topic = policy.topic AND lane.lane = ANY(names) AND lane.waits_for IS NOT NULL AND lane.next_at IS NOT NULL
          AND cardinality(lane.waits_for) > (
              SELECT count(*) FROM pulse.jobs AS job WHERE job.id = ANY(lane.waits_for) AND job.finished_at IS NULL);
    END IF;
END
$$;
