-- Claims jobs of limited topics, the topics in the order of `asked`, within their limits, rates
-- and lanes. Returns the leased jobs. Rows without an id have a topic and the seconds until its
-- next job may start. Infinity: all places are taken, and nothing starts before a run has ended.
--
-- The pools are locked first. It waits for one only while it holds none. Each statement of
-- this function, and of the functions that it calls, takes a new snapshot. So it counts after it
-- has the lock, and sees every earlier claim. As one statement, a limit of ten let forty run.
--
--   asked, most, slots, workers, confirms, lease, most_bytes: as claim_batch
--   entered: the lanes that new jobs of the only topic have entered in this statement
--   (hand_over_limited); else NULL. Then it waits for no pool: the session that has locked it may
--   wait for the table, or for one of the new jobs.
--   running: how many slots, from the first, would start their jobs at once; NULL: all. Jobs in
--   further slots would wait in a worker.
CREATE OR REPLACE FUNCTION pulse.claim_limited_v1(
    asked text[], most integer, slots integer[], workers text[], confirms boolean[], lease interval, most_bytes bigint,
    entered text[], running integer DEFAULT NULL
) RETURNS TABLE (
    slot integer, worker integer, id uuid, topic text, payload bytea, attempts integer, run integer, priority integer, max_attempts integer,
    metadata jsonb, idempotency_key text, confirm boolean, waited_seconds double precision, age_seconds double precision,
    has_steps boolean, progress jsonb, lane text, next_start_seconds double precision
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names      text[];
    locked     text[];
    pool       pulse.pools;
    before     pulse.pools;
    policy     pulse.limit_policies;
    taken      integer := 0;            -- slots
    bytes_left bigint := most_bytes;
    room       integer;
    reserve    integer;
    short      integer;                 -- slots without a job that would have started it at once
    next_start timestamptz;
    stamp      timestamptz;
    held_until timestamptz;
    noticed    record;
    more_enter boolean;                 -- jobs may still have to enter lanes, or notices be left
    picked     record;
    got        integer;
BEGIN
    IF cardinality(asked) = 1 THEN
        SELECT ARRAY[known.pool] INTO names FROM pulse.limit_policies AS known WHERE known.topic = asked[1];
    ELSE
        SELECT array_agg(passed.name ORDER BY passed.place) INTO names
        FROM (
            SELECT known.pool AS name, min(wanted.place) AS place
            FROM unnest(asked) WITH ORDINALITY AS wanted (topic, place)
            JOIN pulse.limit_policies AS known ON known.topic = ANY(ARRAY[wanted.topic])
            GROUP BY known.pool
        ) AS passed;
    END IF;
    -- Pools that another session has locked are left for the next claim. It waits for one only
    -- if there is no free one.
    SELECT array_agg(free.name) INTO locked
    FROM (
        SELECT known.name FROM pulse.pools AS known WHERE known.name = ANY(names)
        ORDER BY known.name
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free;
    IF locked IS NULL AND entered IS NULL THEN
        PERFORM FROM pulse.pools AS known WHERE known.name = names[1] FOR NO KEY UPDATE;
        locked := names[1:1];
    END IF;
    locked := COALESCE(locked, '{}');
    IF cardinality(locked) < cardinality(names) THEN
        next_start_seconds := 0;
        FOR topic IN
            SELECT known.topic
            FROM pulse.limit_policies AS known
            WHERE known.topic = ANY(asked) AND known.pool = ANY(names) AND known.pool <> ALL(locked)
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
    -- Not in the order of the locks: otherwise the topics of the first name would always take the
    -- slots of all other topics.
    FOR pool IN
        SELECT * FROM pulse.pools AS known WHERE known.name = ANY(locked) ORDER BY array_position(names, known.name)
    LOOP
        before := pool;
        SELECT * INTO noticed FROM pulse.take_notices_v1(pool.name);
        pool.held := pool.held - noticed.ended;
        IF entered <> '{}' THEN
            PERFORM pulse.open_lanes_v1(known, entered)
            FROM pulse.limit_policies AS known
            WHERE known.topic = ANY(asked) AND known.pool = pool.name AND known.laned;
            IF FOUND THEN
                entered := '{}';
            END IF;
        END IF;
        FOR policy IN
            SELECT known.*
            FROM unnest(asked) WITH ORDINALITY AS wanted (topic, place)
            JOIN pulse.limit_policies AS known ON known.topic = ANY(ARRAY[wanted.topic]) AND known.pool = pool.name
            WHERE {dispatch_is_on}
              AND NOT EXISTS (
                  SELECT FROM pulse.barred_topics AS barred WHERE barred.topic = wanted.topic AND barred.paused OFFSET 0)
            ORDER BY wanted.place
        LOOP
            next_start := NULL;
            stamp := clock_timestamp();
            -- Jobs in the slots after `running` wait in their workers. They leave room for workers
            -- that lately could have started a job at once. They get no place where a start counts
            -- from its claim on, or where jobs run in order.
            reserve := CASE WHEN pool.wanted_until > stamp THEN pool.wanted ELSE 0 END;
            room := LEAST(most - taken, pool.limit - pool.held, GREATEST(
                COALESCE(running, most) - taken,
                CASE WHEN pool.starts IS NULL AND policy.lane_starts IS NULL AND NOT policy.ordered THEN
                    COALESCE(pool.limit - pool.held - reserve, most - taken)
                END
            ));
            IF pool.starts IS NOT NULL THEN
                pool.slices := pulse.slices_at_v1(
                    pool.slices, pool.slice, pulse.slice_of_v1(stamp, pool.period, pool.slice));
                pool.slice := pulse.slice_of_v1(stamp, pool.period, pool.slice);
                room := LEAST(room, pool.starts - pulse.slices_sum_v1(pool.slices));
            END IF;
            -- A topic without limits cannot be held.
            held_until := CASE WHEN NOT policy.retired THEN GREATEST(pool.closed_until, policy.closed_until) END;
            IF held_until > stamp THEN
                room := 0;
            END IF;
            more_enter := noticed.has_more;
            -- There is rarely a job to move: looking for one costs less than the statement that
            -- moves jobs.
            IF policy.laned THEN
                PERFORM FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND {stands_in_no_lane}
                LIMIT 1;
                IF FOUND THEN
                    more_enter := pulse.enter_lanes_v1(policy) OR more_enter;
                END IF;
                IF policy.ranked_lane IS NOT NULL THEN
                    more_enter := pulse.rank_anew_v1(policy) OR more_enter;
                    SELECT * INTO policy FROM pulse.limit_policies AS known WHERE known.topic = policy.topic;
                END IF;
            ELSE
                PERFORM FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND {stands_in_lane}
                LIMIT 1;
                IF FOUND THEN
                    PERFORM pulse.leave_lanes_v1(policy.topic);
                END IF;
            END IF;
            IF room > 0 AND (bytes_left > 0 OR taken = 0) THEN
                IF policy.laned THEN
                    SELECT * INTO picked FROM pulse.pick_by_turns_v1(policy, stamp, room, bytes_left);
                ELSE
                    SELECT *, false AS has_more INTO picked FROM pulse.pick_in_order_v1(policy.topic, room, bytes_left);
                END IF;
                IF picked.tids IS NOT NULL THEN
                    -- As claim_batch does, for the slots after the first `taken`. started_at is the
                    -- moment by which the rates were counted. Not in a function: its rows would be
                    -- stored once more.
                    RETURN QUERY
                    WITH leased AS (
                        UPDATE pulse.jobs AS job
                        SET status = 'RUNNING',
                            attempts = job.attempts + 1,
                            run = job.run + 1,
                            locked_by = workers[slots[taken + pick.place]],
                            lease_until = clock_timestamp() + lease,
                            started_at = stamp,
                            delivered = NOT confirms[slots[taken + pick.place]],
                            pool = pool.name,
                            lane_held = CASE WHEN policy.per_lane IS NOT NULL AND job.lane <> '' THEN job.lane END
                        FROM unnest(picked.tids, picked.confirmed) WITH ORDINALITY AS pick (tid, must_confirm, place)
                        WHERE job.ctid = pick.tid
                        RETURNING
                            (taken + pick.place)::int AS slot, slots[taken + pick.place] AS worker, {claimed_job},
                            pick.must_confirm AND NOT job.delivered AS confirm,
                            GREATEST(0, date_part('epoch', job.started_at - job.next_run_at)) AS waited_seconds,
                            NULL::float8 AS age_seconds, job.steps IS NOT NULL AS has_steps, job.progress, job.lane,
                            NULL::float8 AS next_start_seconds
                    ),
                    checked AS (
                        INSERT INTO pulse.lease_checks (check_at, settled, ids)
                        SELECT now() + LEAST(lease, {longest_unsettled}), false, array_agg(leased.id)
                        FROM leased
                        HAVING count(*) > 0
                    )
                    SELECT * FROM leased;
                    GET DIAGNOSTICS got = ROW_COUNT;
                    taken := taken + got;
                    bytes_left := bytes_left - picked.bytes;
                    pool.held := pool.held + got;
                    IF pool.starts IS NOT NULL THEN
                        pool.slices := pulse.slices_with_v1(pool.slices, got);
                        IF policy.pool <> policy.topic THEN
                            UPDATE pulse.limit_policies AS known
                            SET slice = pool.slice,
                                slices = pulse.slices_with_v1(pulse.slices_at_v1(
                                    COALESCE(known.slices, '{}'), COALESCE(known.slice, 0), pool.slice), got)
                            WHERE known.topic = policy.topic;
                        END IF;
                    END IF;
                END IF;
                IF picked.has_more THEN
                    next_start := stamp;
                END IF;
            END IF;
            IF policy.laned AND next_start IS NULL THEN
                SELECT lane.next_at INTO next_start
                FROM pulse.lanes AS lane
                WHERE lane.topic = policy.topic AND lane.next_at IS NOT NULL
                ORDER BY lane.next_at
                LIMIT 1;
            END IF;
            -- Nothing more starts before the rate has room, even if this claim has spent it, nor
            -- before a hold ends.
            IF pool.starts IS NOT NULL AND pool.starts <= pulse.slices_sum_v1(pool.slices) THEN
                next_start := GREATEST(stamp, pulse.slices_free_at_v1(pool.slices, pool.slice, pool.period));
            END IF;
            IF held_until > stamp THEN
                next_start := GREATEST(next_start, held_until);
            END IF;
            -- A large backlog still fills the lanes: jobs of other lanes may come after it.
            IF more_enter THEN
                next_start := LEAST(next_start, clock_timestamp() + interval '20 milliseconds');
            END IF;
            IF next_start IS NOT NULL OR pool.held >= pool.limit THEN
                topic := policy.topic;
                next_start_seconds := CASE
                    WHEN pool.held >= pool.limit AND NOT more_enter THEN 'infinity'::float8
                    ELSE GREATEST(0, date_part('epoch', next_start - clock_timestamp()))
                END;
                RETURN NEXT;
            END IF;
        END LOOP;
        -- Not at every claim: this may be the only change of the row.
        short := COALESCE(running, most) - taken;
        IF short > 0 AND pool.held >= pool.limit AND (
            short > pool.wanted OR COALESCE(pool.wanted_until < clock_timestamp() + interval '500 milliseconds', true)
        ) THEN
            pool.wanted := short;
            pool.wanted_until := clock_timestamp() + interval '1 second';
        END IF;
        IF pool IS DISTINCT FROM before THEN
            UPDATE pulse.pools AS known
            SET held = pool.held, slice = pool.slice, slices = pool.slices,
                wanted = pool.wanted, wanted_until = pool.wanted_until
            WHERE known.name = pool.name;
        END IF;
    END LOOP;
    -- The pool was locked, or the topic has moved to another one.
    IF entered <> '{}' THEN
        PERFORM pulse.notice_lanes_v1(known, entered) FROM pulse.limit_policies AS known WHERE known.topic = ANY(asked) AND known.laned;
    END IF;
END
$$;
