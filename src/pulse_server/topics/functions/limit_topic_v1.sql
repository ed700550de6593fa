-- Gives a topic limits, or changes them. Numbers change at once. If the topic becomes limited, or if
-- its jobs are counted elsewhere or ranked differently from now on, its running jobs are changed and
-- counted. No job of it starts or ends meanwhile: limited claims wait for the pool, which is locked
-- first, and ends for the jobs. Plain claims are excluded by :mark, the row of barred_topics that
-- mark_topic wrote: all that began before it have ended. docs/figures.md#limits-without-a-table-lock
--
-- Returns what was met. Only `in force` has changed something.
--   in force
--   unmarked: the topic becomes limited, and :mark is NULL or no longer the newest
--   changed: another session changed the limits at the same moment
CREATE OR REPLACE FUNCTION pulse.limit_topic_v1(policy pulse.limit_policies, wanted pulse.pools, mark xid) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before pulse.limit_policies;
    pool   pulse.pools;
    came   pulse.pools;         -- the previous pool, if it was another one
    moved  text;                -- the previous pool, as first read
    counts boolean;             -- running jobs are counted anew
    met    text;
    stamp  timestamptz;
BEGIN
    IF mark IS NULL AND NOT EXISTS (SELECT FROM pulse.limit_policies AS known WHERE known.topic = policy.topic) THEN
        RETURN 'unmarked';
    END IF;
    INSERT INTO pulse.pools (name) VALUES (wanted.name) ON CONFLICT DO NOTHING;
    SELECT known.pool INTO moved FROM pulse.limit_policies AS known WHERE known.topic = policy.topic;
    PERFORM FROM pulse.pools AS known
    WHERE known.name IN (wanted.name, moved)
    ORDER BY known.name
    FOR NO KEY UPDATE;
    SELECT * INTO before FROM pulse.limit_policies AS known WHERE known.topic = policy.topic;
    counts := before.topic IS NULL OR before.pool <> policy.pool OR before.laned <> policy.laned
        OR (before.per_lane IS NULL) <> (policy.per_lane IS NULL) OR before.aging IS DISTINCT FROM policy.aging;
    IF before.pool IS DISTINCT FROM moved THEN
        met := 'changed';
    ELSIF before.topic IS NULL THEN
        -- Written, and not only locked: unmark_topic_v1, which may wait for this row, leaves it then.
        UPDATE pulse.barred_topics AS barred SET limited = true WHERE barred.topic = policy.topic AND barred.limited AND barred.xmin = mark;
        met := CASE WHEN NOT FOUND THEN 'unmarked' END;
    END IF;
    IF met IS NOT NULL THEN
        PERFORM pulse.forget_pool_v1(wanted.name);
        RETURN met;
    END IF;
    SELECT * INTO pool FROM pulse.pools AS known WHERE known.name = wanted.name;
    SELECT * INTO came FROM pulse.pools AS known WHERE known.name = before.pool AND known.name <> wanted.name;
    -- A topic takes its starts and its hold along. A removed rate leaves its starts, which count
    -- again for the next rate.
    IF came.name <> policy.topic THEN
        came.slice := before.slice;
        came.slices := before.slices;
    END IF;
    wanted.period := COALESCE(wanted.period, pool.period, came.period);
    policy.lane_period := COALESCE(policy.lane_period, before.lane_period);
    IF wanted.period IS NOT NULL THEN
        stamp := clock_timestamp();
        wanted.slice := GREATEST(
            pulse.slice_of_v1(stamp, wanted.period, CASE WHEN pool.period = wanted.period THEN pool.slice END),
            pulse.slice_of_v1(stamp, wanted.period, CASE WHEN came.period = wanted.period THEN came.slice END));
        pool.slices := pulse.slices_in_v1(pool.slices, pool.slice, pool.period, wanted.slice, wanted.period);
        came.slices := pulse.slices_in_v1(
            COALESCE(came.slices, '{}'), COALESCE(came.slice, 0), came.period, wanted.slice, wanted.period);
    END IF;
    UPDATE pulse.pools AS known
    SET "limit" = wanted.limit,
        starts = wanted.starts,
        period = wanted.period,
        slice = COALESCE(wanted.slice, known.slice),
        slices = COALESCE(pulse.slices_of_both_v1(pool.slices, came.slices), '{}')
    WHERE known.name = wanted.name;
    UPDATE pulse.limit_policies AS known
    SET slice = wanted.slice,
        slices = pulse.slices_in_v1(known.slices, known.slice, pool.period, wanted.slice, wanted.period)
    WHERE known.pool = wanted.name AND known.slices IS NOT NULL AND pool.period <> wanted.period;
    IF came.name IS NOT NULL THEN
        policy.closed_until := GREATEST(before.closed_until, came.closed_until);
        IF policy.pool <> policy.topic THEN
            policy.slice := wanted.slice;
            policy.slices := came.slices;
        END IF;
    END IF;
    INSERT INTO pulse.limit_policies AS known SELECT (policy).*
    ON CONFLICT (topic) DO UPDATE
    SET pool = EXCLUDED.pool,
        laned = EXCLUDED.laned,
        per_lane = EXCLUDED.per_lane,
        lane_starts = EXCLUDED.lane_starts,
        lane_period = EXCLUDED.lane_period,
        ordered = EXCLUDED.ordered,
        aging = EXCLUDED.aging,
        retired = EXCLUDED.retired,
        -- Transactions under way may still put jobs into lanes by the old policy.
        older = CASE
            WHEN known.laned AND (known.pool <> EXCLUDED.pool OR NOT EXCLUDED.laned OR known.aging IS DISTINCT FROM EXCLUDED.aging)
            THEN '{}'
            ELSE known.older
        END,
        slice = CASE WHEN known.pool = EXCLUDED.pool THEN known.slice ELSE EXCLUDED.slice END,
        slices = CASE WHEN known.pool = EXCLUDED.pool THEN known.slices ELSE EXCLUDED.slices END,
        closed_until = CASE WHEN known.pool = EXCLUDED.pool THEN known.closed_until ELSE EXCLUDED.closed_until END;
    IF counts THEN
        IF before.laned AND policy.laned AND before.per_lane IS NOT NULL AND policy.per_lane IS NULL THEN
            -- Running jobs have no places any more. Places in the line now stand for turns, one per
            -- lane.
            WITH locked AS MATERIALIZED (
                SELECT job.lane_held AS lane
                FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND {is_checked_run}
                FOR NO KEY UPDATE
            ),
            running AS MATERIALIZED (
                SELECT locked.lane, count(*)::int AS jobs FROM locked WHERE locked.lane IS NOT NULL GROUP BY locked.lane
            ),
            counted AS (
                INSERT INTO pulse.lanes AS known (topic, lane, held)
                SELECT policy.topic, running.lane, -running.jobs FROM running
                ON CONFLICT (topic, lane) DO UPDATE SET held = known.held + EXCLUDED.held
            )
            INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
            SELECT policy.pool, policy.topic, ARRAY[running.lane], 0 FROM running;
        END IF;
        -- Waits for ends under way. From here on none of these jobs ends before this transaction does, so
        -- the statements below count what runs.
        UPDATE pulse.jobs AS job
        SET pool = policy.pool,
            lane = CASE WHEN policy.laned THEN COALESCE(job.lane, '') ELSE job.lane END,
            lane_held = CASE WHEN policy.per_lane IS NOT NULL AND job.lane <> '' THEN job.lane END
        WHERE job.topic = policy.topic AND {is_checked_run};
        UPDATE pulse.limit_notices AS notice
        SET pool = policy.pool
        WHERE notice.topic = policy.topic AND notice.lanes IS NOT NULL;
        PERFORM pulse.count_runs_v1(known.name)
        FROM pulse.pools AS known
        WHERE known.name IN (policy.pool, before.pool);
        PERFORM pulse.forget_pool_v1(before.pool);
    END IF;
    IF policy.laned AND (before.aging IS DISTINCT FROM policy.aging OR NOT before.laned) THEN
        -- Jobs of transactions under way may still come with an old rank: unlimit_topic_v1 begins anew
        -- once these have ended.
        UPDATE pulse.limit_policies AS known
        SET {ranked_anew}
        WHERE known.topic = policy.topic AND before.topic IS NOT NULL;
    END IF;
    IF policy.laned AND before.laned IS NOT TRUE THEN
        PERFORM pulse.count_lanes_v1(policy);
    ELSIF policy.laned AND policy.per_lane IS NOT NULL THEN
        -- A turn is now a place, and each running job has one.
        INSERT INTO pulse.lanes AS known (topic, lane, held)
        SELECT policy.topic, run.lane_held, count(*)
        FROM pulse.limited_runs AS run
        WHERE before.per_lane IS NULL AND run.topic = policy.topic AND run.lane_held IS NOT NULL
        GROUP BY run.lane_held
        ON CONFLICT (topic, lane) DO UPDATE SET held = known.held + EXCLUDED.held;
        IF (before.per_lane, before.ordered) IS DISTINCT FROM (policy.per_lane, policy.ordered) THEN
            PERFORM pulse.limits_of_lanes_changed_v1(policy, NULL);
        END IF;
    ELSIF before.laned AND NOT policy.laned THEN
        DELETE FROM pulse.lane_line AS place WHERE place.topic = policy.topic;
        DELETE FROM pulse.lanes AS lane WHERE lane.topic = policy.topic AND lane.slices = '{}';
        UPDATE pulse.lanes AS lane
        SET held = 0, weight = 1, "limit" = NULL, waiting = 0, next_at = NULL, waits_for = NULL
        WHERE lane.topic = policy.topic;
    END IF;
    -- Also for the slices of lanes. Lanes that wait for the old rate read the new one at the next
    -- claim.
    IF before.lane_period <> policy.lane_period THEN
        UPDATE pulse.lanes AS lane
        SET slice = pulse.slice_of_v1(clock_timestamp(), policy.lane_period, NULL),
            slices = pulse.slices_in_v1(lane.slices, lane.slice, before.lane_period, 0, policy.lane_period)
        WHERE lane.topic = policy.topic AND lane.slices <> '{}';
    END IF;
    IF (before.lane_starts, before.lane_period) IS DISTINCT FROM (policy.lane_starts, policy.lane_period) THEN
        UPDATE pulse.lanes AS lane
        SET next_at = clock_timestamp()
        WHERE lane.topic = policy.topic AND lane.next_at IS NOT NULL;
    END IF;
    RETURN 'in force';
END
$$;
