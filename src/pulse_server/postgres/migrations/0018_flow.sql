-- Flow control: limits, rates, lanes and turns, for topics that have a flow policy. ADR-0064
--
-- A topic with a flow policy is governed. Its claims pass a turnstile, one at a time in the whole cluster. What flow control
-- writes (turnstiles, lanes, the removal of notices) is written under the lock of the turnstile only. All other statements
-- append notices, which waits for no lock. So there is one lock, and claims take it before any other.
--
-- In one transaction, as 0003. The table is not rewritten; the claim index is built anew.

ALTER TABLE pulse.jobs
    ADD COLUMN lane      text,         -- as given at submit; '' once the job stands in the lane of those without one
    ADD COLUMN tier      integer,      -- the order in its lane: first by tier, the highest first. NULL: it stands in no lane
    ADD COLUMN rank_at   timestamptz,  -- then by this
    ADD COLUMN turnstile text,         -- where the last attempt was counted. Counts while the job runs; NULL: nowhere
    ADD COLUMN lane_held text;         -- the lane that the last attempt has a place in; NULL: its lane has no limit
ALTER TABLE pulse.completed_jobs ADD COLUMN lane text;

-- Each queued job is in one of the two. What a claim writes stands in neither. ADR-0056
CREATE INDEX jobs_claim_next ON pulse.jobs (topic, priority DESC, submitted_at, id) INCLUDE (next_run_at)
    WHERE queued AND tier IS NULL;
DROP INDEX pulse.jobs_claim;
ALTER INDEX pulse.jobs_claim_next RENAME TO jobs_claim;
CREATE INDEX jobs_lane ON pulse.jobs (topic, lane, tier DESC, rank_at, id) INCLUDE (next_run_at)
    WHERE queued AND tier IS NOT NULL;
-- list_jobs. Nothing that changes after the submit stands in it, and no job without a lane.
CREATE INDEX jobs_of_lane ON pulse.jobs (topic, lane, submitted_at DESC, id DESC) WHERE lane > '';

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane
FROM pulse.completed_jobs AS done;

-- Plain claims and hand-overs take nothing of a topic that is in this table. Governed topics are, paused or not.
ALTER TABLE pulse.paused_topics
    ADD COLUMN paused   boolean NOT NULL DEFAULT true,
    ADD COLUMN governed boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT paused_topics_has_a_reason CHECK (paused OR governed);

-- One for each governed topic that has no pool, under the name of the topic, and one for each pool.
CREATE TABLE pulse.turnstiles (
    name         text        PRIMARY KEY,
    max_running  integer     CONSTRAINT turnstiles_max_running_is_positive CHECK (max_running > 0),
    starts       integer     CONSTRAINT turnstiles_starts_is_positive CHECK (starts > 0),  -- at most, in any period
    period       interval,                            -- without starts: that of the last rate, for its slices
    held         integer     NOT NULL DEFAULT 0,      -- jobs that run and are counted here, and places in notices
    slice        bigint      NOT NULL DEFAULT 0,      -- that of the last entry in slices
    slices       integer[]   NOT NULL DEFAULT '{}',   -- starts of the period, in 21 slices
    closed_until timestamptz,                         -- no start before then
    operator_until timestamptz,                       -- the same, as far as operators have set it: workers cannot end it
    CONSTRAINT turnstiles_rate_is_whole CHECK (starts IS NULL OR period IS NOT NULL)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- What holds for each governed topic now, of what operators have set and code declares.
CREATE TABLE pulse.flow_policies (
    topic       text     PRIMARY KEY,
    turnstile   text     NOT NULL,
    laned       boolean  NOT NULL DEFAULT false,      -- jobs stand in lanes, which take turns
    per_lane    integer  CONSTRAINT flow_policies_per_lane_is_positive CHECK (per_lane > 0),
    shrinks     boolean  NOT NULL DEFAULT false,      -- a lane may have more places in use than it is to have
    lane_starts integer  CONSTRAINT flow_policies_lane_starts_is_positive CHECK (lane_starts > 0),
    lane_period interval,                             -- without lane_starts: that of the last rate of lanes
    ordered     boolean  NOT NULL DEFAULT false,      -- a job that is tried again holds its lane
    retired     boolean  NOT NULL DEFAULT false,      -- says nothing any more: goes once ungovern permits it
    aging       interval,                             -- of waiting that is worth a step of priority
    -- After a change of aging: the jobs in lanes that come after this one may have the rank of before. NULL: none has.
    ranked_lane text,
    ranked_tier integer,
    ranked_at   timestamptz,
    ranked_id   uuid,
    -- What the topic takes along to another turnstile. Slices: its own starts of those of its pool, in slices of the same length.
    slice        bigint,
    slices       integer[],
    closed_until timestamptz,                         -- a hold of the turnstile that it had before
    CONSTRAINT flow_policies_lane_rate_is_whole CHECK (lane_starts IS NULL OR lane_period IS NOT NULL),
    CONSTRAINT flow_policies_lanes_are_laned
        CHECK (laned OR (per_lane IS NULL AND lane_starts IS NULL AND aging IS NULL AND NOT ordered))
);

-- The lanes that have jobs, or had some a while ago. A lane has as many places as jobs of it may run at once, or one if there
-- is no such limit. A place is in the line, or a running job has it, or it waits for next_at, or it is not in use.
CREATE TABLE pulse.lanes (
    topic       text        NOT NULL,
    lane        text        NOT NULL,
    held        integer     NOT NULL,                 -- places in use: in the line, waiting, or a running job has it
    weight      smallint    NOT NULL DEFAULT 1 CONSTRAINT lanes_weight_is_positive CHECK (weight > 0),
    max_running integer     CONSTRAINT lanes_max_running_is_positive CHECK (max_running > 0),  -- instead of per_lane
    waiting     integer     NOT NULL DEFAULT 0,       -- places that wait for next_at: the rate is spent, or a retry holds the lane
    next_at     timestamptz,
    waits_for   uuid[],                               -- jobs that are tried again and hold the lane, where order is kept
    slice       bigint      NOT NULL DEFAULT 0,
    slices      integer[]   NOT NULL DEFAULT '{}',
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT lanes_pkey PRIMARY KEY (topic, lane),
    CONSTRAINT lanes_wait_has_an_end CHECK ((waiting > 0) = (next_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_waiting ON pulse.lanes (topic, next_at) WHERE next_at IS NOT NULL;

-- The line of turns: free places of lanes, in the order in which they are used. The statement that ends jobs appends the
-- places that they had, up to 64 lanes in a row: a row for each costs as much as a third of the lease.
CREATE TABLE pulse.lane_line (
    id      bigint    GENERATED ALWAYS AS IDENTITY,
    topic   text      NOT NULL,
    lanes   text[]    NOT NULL,
    places  integer   NOT NULL,                       -- of each of them
    job_id  uuid,                                     -- the job of the only lane, if it will be tried again
    -- Of a row of which lanes were used: how many stood before these, and the jobs that are left of the turn of each; NULL: all.
    place   integer   NOT NULL DEFAULT 0,
    credits integer[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
CREATE INDEX lane_line_next ON pulse.lane_line (topic, id, place);

-- What a claim has to know and did not see itself: runs that have ended, lanes that have new work.
CREATE TABLE pulse.flow_notices (
    turnstile text    NOT NULL,
    topic     text    NOT NULL,
    lanes     text[],                                 -- have new work; NULL: runs have ended
    ended     integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
CREATE INDEX flow_notices_next ON pulse.flow_notices (turnstile);
-- As lease_checks (0011): a key would cost every turn and every notice an index entry.
ALTER TABLE pulse.lane_line REPLICA IDENTITY FULL;
ALTER TABLE pulse.flow_notices REPLICA IDENTITY FULL;

-- A start is counted when it is claimed, and its handler begins later. So starts count for the period and a margin, a tenth of it
-- and at most a second, in 20 slices and the one under way: until the whole slice is older than that. In any period of that length
-- no more handlers begin than are allowed, if each begins within the margin. Up to a twentieth is given away for the slices.
CREATE FUNCTION pulse.slice_seconds(period interval) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT date_part('epoch', period + LEAST(period / 10, interval '1 second')) / 20
$$;

-- The clock may be set back. Slices are not, by up to a period; from further ahead they begin anew, with all starts as of now:
-- else nothing would start for as long as the clock was ahead.
CREATE FUNCTION pulse.slice_of(moment timestamptz, period interval, at_least bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN at_least > slice.number + 20 THEN slice.number ELSE GREATEST(at_least, slice.number) END
    FROM (SELECT floor(date_part('epoch', moment) / pulse.slice_seconds(period))::bigint AS number) AS slice
$$;

-- The slices as they are at a later slice.
CREATE FUNCTION pulse.slices_at(slices integer[], slice bigint, later bigint) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN cardinality(slices) = 0 OR later - slice > 20 THEN array_fill(0, ARRAY[21])
        WHEN later = slice THEN slices
        WHEN later < slice THEN array_fill(0, ARRAY[20]) || (SELECT sum(starts)::int FROM unnest(slices) AS starts)
        ELSE slices[1 + (later - slice)::int : 21] || array_fill(0, ARRAY[(later - slice)::int])
    END
$$;

CREATE FUNCTION pulse.slices_sum(slices integer[]) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(sum(counted), 0)::int FROM unnest(slices) AS counted
$$;

CREATE FUNCTION pulse.slices_with(slices integer[], starts integer) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT slices[1:20] || (slices[21] + starts)
$$;

-- Both of them, at the same slice. More starts in a slice than a rate can permit make no difference.
CREATE FUNCTION pulse.slices_of_both(slices integer[], others integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(LEAST(COALESCE(one, 0) + COALESCE(other, 0), 1000000) ORDER BY place)
    FROM unnest(slices, others) WITH ORDINALITY AS counted (one, other, place)
$$;

-- The slices at a later slice, of another period than before. Slices of another length say nothing: the starts that count now count
-- for a whole period from now on.
CREATE FUNCTION pulse.slices_in(
    slices integer[], slice bigint, of_period interval, later bigint, period interval
) RETURNS integer[] LANGUAGE sql AS $$
    SELECT CASE
        WHEN of_period = period THEN pulse.slices_at(slices, slice, later)
        ELSE array_fill(0, ARRAY[20]) || pulse.slices_sum(
            pulse.slices_at(slices, slice, pulse.slice_of(clock_timestamp(), of_period, slice)))
    END
$$;

-- When the oldest starts count no longer.
CREATE FUNCTION pulse.slices_free_at(slices integer[], slice bigint, period interval) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT to_timestamp((slice + min(place)) * pulse.slice_seconds(period))
    FROM unnest(slices) WITH ORDINALITY AS counted (starts, place)
    WHERE counted.starts > 0
$$;

-- Where a job stands in its lane: first by tier, then by this. Each step of priority is worth `aging` of waiting. Steps beyond
-- 1e11 seconds (3,169 years) count no more: a priority is any integer, and the result must be a timestamp.
CREATE FUNCTION pulse.rank_of(submitted_at timestamptz, priority integer, aging interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT submitted_at
        - LEAST(GREATEST(COALESCE(priority * date_part('epoch', aging), 0), -1e11), 1e11) * interval '1 second'
$$;

-- How many jobs of a lane run at once, where lanes have a limit. Where order is kept, a lane has no other limit of its own.
CREATE FUNCTION pulse.places_of(policy pulse.flow_policies, own_limit integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN policy.ordered THEN policy.per_lane ELSE COALESCE(own_limit, policy.per_lane) END
$$;

-- Puts places of lanes at the end of the line, in this order.
CREATE FUNCTION pulse.line_up(of_topic text, names text[], free integer[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pulse.lane_line (topic, lanes, places)
    SELECT of_topic, array_agg(lane.name ORDER BY lane.number), lane.places
    FROM unnest(names, free) WITH ORDINALITY AS lane (name, places, number)
    GROUP BY lane.places, (lane.number - 1) / 64
    ORDER BY min(lane.number)
$$;

-- Has the next claim open lanes that may have work and room.
CREATE FUNCTION pulse.notice_lanes(policy pulse.flow_policies, names text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pulse.flow_notices (turnstile, topic, lanes, ended)
    SELECT policy.turnstile, policy.topic, array_agg(lane.name), 0
    FROM unnest(names) WITH ORDINALITY AS lane (name, number)
    GROUP BY lane.number / 64
$$;

-- Puts the free places of lanes that have work into the line. A lane that is new has all of its places free.
CREATE FUNCTION pulse.open_lanes(policy pulse.flow_policies, names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    opened text[];
    places integer[];
    is_new boolean[];
BEGIN
    -- Looked up one by one, and written by upserts: a planner that thinks the lanes few would join each with each.
    SELECT array_agg(lane.name), array_agg(lane.places - lane.held), array_agg(lane.is_new)
    INTO opened, places, is_new
    FROM (
        SELECT
            asked.name, COALESCE(known.held, 0) AS held, known.held IS NULL AS is_new,
            -- As places_of, which takes as long as the look-up.
            CASE
                WHEN asked.name = '' OR policy.per_lane IS NULL THEN 1
                WHEN policy.ordered THEN policy.per_lane
                ELSE COALESCE(known.max_running, policy.per_lane)
            END AS places
        FROM unnest(names) AS asked (name)
        LEFT JOIN LATERAL (
            SELECT lane.held, lane.max_running
            FROM pulse.lanes AS lane
            WHERE lane.topic = policy.topic AND lane.lane = asked.name
            LIMIT 1
        ) AS known ON true
    ) AS lane
    WHERE lane.held < lane.places;
    IF opened IS NOT NULL THEN
        -- No other session makes lanes of this topic meanwhile, but one may forget them. The look for conflicts costs as much
        -- as the row.
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
            PERFORM pulse.line_up(policy.topic, opened, places);
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

-- Takes notices of a turnstile, which is locked, and returns how many runs have ended. Those of transactions that have not
-- ended stay for the next claim; so do those behind the first with 2,000 lanes (has_more), which take a claim 20 ms.
CREATE FUNCTION pulse.take_notices(of_turnstile text, OUT ended integer, OUT has_more boolean) LANGUAGE plpgsql AS $$
DECLARE
    tids   tid[];
    news   record;
    policy pulse.flow_policies;
BEGIN
    ended := 0;
    has_more := false;
    PERFORM FROM pulse.flow_notices AS next WHERE next.turnstile = of_turnstile LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(counted.tid) FILTER (WHERE counted.before < 2000), COALESCE(bool_or(counted.before >= 2000), false)
    INTO tids, has_more
    FROM (
        SELECT notice.tid, sum(notice.size) OVER (ROWS UNBOUNDED PRECEDING) - notice.size AS before
        FROM (
            SELECT next.ctid AS tid, COALESCE(cardinality(next.lanes), 1) AS size
            FROM pulse.flow_notices AS next
            WHERE next.turnstile = of_turnstile
            LIMIT 2001
        ) AS notice
    ) AS counted;
    FOR news IN
        WITH taken AS (
            DELETE FROM pulse.flow_notices AS notice
            WHERE notice.ctid = ANY(tids)
            RETURNING notice.topic, notice.lanes, notice.ended
        )
        SELECT
            runs.topic, runs.ended,
            (SELECT array_agg(DISTINCT lane.name)
             FROM taken CROSS JOIN LATERAL unnest(taken.lanes) AS lane (name)
             WHERE taken.topic = runs.topic) AS lanes
        FROM (SELECT taken.topic, sum(taken.ended) AS ended FROM taken GROUP BY taken.topic) AS runs
    LOOP
        ended := ended + news.ended;
        IF news.lanes IS NOT NULL THEN
            SELECT * INTO policy FROM pulse.flow_policies AS known WHERE known.topic = news.topic AND known.laned;
            IF FOUND THEN
                PERFORM pulse.open_lanes(policy, news.lanes);
            END IF;
        END IF;
    END LOOP;
END
$$;

-- Puts jobs of a topic with lanes that stand in none into theirs: the backlog from before the policy, the jobs of schedules,
-- those that are due after a delay or a retry, and those that got another priority. Returns whether there may be more of them.
CREATE FUNCTION pulse.enter_lanes(policy pulse.flow_policies) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    names text[];
    jobs  integer;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE job.topic = policy.topic AND job.queued AND job.tier IS NULL AND job.locked_by IS NULL
        ORDER BY job.priority DESC, job.submitted_at, job.id
        LIMIT 1000
        FOR UPDATE OF job SKIP LOCKED
    ),
    entered AS (
        UPDATE pulse.jobs AS job
        SET lane = COALESCE(job.lane, ''),
            tier = CASE WHEN policy.aging IS NULL THEN job.priority ELSE 0 END,
            rank_at = pulse.rank_of(job.submitted_at, job.priority, policy.aging)
        FROM found
        WHERE job.ctid = found.tid
        RETURNING job.lane
    )
    SELECT array_agg(DISTINCT entered.lane), count(*) INTO names, jobs FROM entered;
    IF names IS NOT NULL THEN
        PERFORM pulse.open_lanes(policy, names);
    END IF;
    RETURN jobs = 1000;
END
$$;

-- The same backwards, for a topic that has no lanes any more.
CREATE FUNCTION pulse.leave_lanes(of_topic text) RETURNS void LANGUAGE sql AS $$
    UPDATE pulse.jobs AS job
    SET tier = NULL, rank_at = NULL
    WHERE job.ctid = ANY(ARRAY(
        SELECT laned.ctid
        FROM pulse.jobs AS laned
        WHERE laned.topic = of_topic AND laned.queued AND laned.tier IS NOT NULL AND laned.locked_by IS NULL
        ORDER BY laned.lane, laned.tier DESC, laned.rank_at, laned.id
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ))
$$;

-- Ranks the jobs in the lanes of a topic anew after a change of its aging: the next thousand, lane by lane. Those of priority 0
-- have the same rank under any aging. It stops before a job that another session has locked. Returns whether to go on at once.
CREATE FUNCTION pulse.rank_anew(policy pulse.flow_policies) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    step record;
BEGIN
    -- Three ranges of the index: with one condition for all, a large lane would be read from its beginning each time.
    WITH next AS MATERIALIZED (
        SELECT job.*, row_number() OVER () AS number
        FROM (
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane = policy.ranked_lane AND job.tier = policy.ranked_tier
               AND (job.rank_at, job.id) > (policy.ranked_at, policy.ranked_id) AND job.queued AND job.locked_by IS NULL
             ORDER BY job.rank_at, job.id
             LIMIT 1000)
            UNION ALL
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane = policy.ranked_lane AND job.tier < policy.ranked_tier
               AND job.queued AND job.locked_by IS NULL
             ORDER BY job.tier DESC, job.rank_at, job.id
             LIMIT 1000)
            UNION ALL
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane > policy.ranked_lane AND job.tier IS NOT NULL
               AND job.queued AND job.locked_by IS NULL
             ORDER BY job.lane, job.tier DESC, job.rank_at, job.id
             LIMIT 1000)
        ) AS job
        LIMIT 1000
    ),
    stale AS MATERIALIZED (
        SELECT next.id, next.number
        FROM next
        WHERE next.priority <> 0 AND (next.tier, next.rank_at) IS DISTINCT FROM (
            CASE WHEN policy.aging IS NULL THEN next.priority ELSE 0 END,
            pulse.rank_of(next.submitted_at, next.priority, policy.aging))
    ),
    found AS MATERIALIZED (
        SELECT job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE job.id = ANY(ARRAY(SELECT stale.id FROM stale))
          AND job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
        FOR UPDATE OF job SKIP LOCKED
    ),
    ranked AS (
        UPDATE pulse.jobs AS job
        SET tier = CASE WHEN policy.aging IS NULL THEN job.priority ELSE 0 END,
            rank_at = pulse.rank_of(job.submitted_at, job.priority, policy.aging)
        WHERE job.ctid = ANY(ARRAY(SELECT found.tid FROM found))
        RETURNING job.id
    ),
    reached AS (
        SELECT COALESCE(min(stale.number) - 1, (SELECT count(*) FROM next)) AS number, count(*) = 0 AS has_all
        FROM stale
        WHERE stale.id NOT IN (SELECT ranked.id FROM ranked)
    )
    -- Where the last of them stood: it may stand elsewhere now, but none behind it has moved.
    SELECT reached.number, reached.has_all AND reached.number < 1000 AS is_over, last.lane, last.tier, last.rank_at, last.id
    INTO step
    FROM reached
    LEFT JOIN next AS last ON last.number = reached.number;
    IF step.number > 0 OR step.is_over THEN
        UPDATE pulse.flow_policies AS known
        SET ranked_lane = CASE WHEN NOT step.is_over THEN step.lane END,
            ranked_tier = CASE WHEN NOT step.is_over THEN step.tier END,
            ranked_at = CASE WHEN NOT step.is_over THEN step.rank_at END,
            ranked_id = CASE WHEN NOT step.is_over THEN step.id END
        WHERE known.topic = policy.topic;
    END IF;
    RETURN step.number > 0 AND NOT step.is_over;
END
$$;

-- What claim_governed returns: a job that was leased, or, without an id, a topic and when its next job may start. Infinity: all
-- places are taken, and nothing starts before a run has ended. The column jobs.progress is of migration 0021.
CREATE TYPE pulse.governed_claim AS (
    slot integer, worker integer, id uuid, topic text, payload bytea, attempts integer, priority integer,
    max_attempts integer, metadata jsonb, idempotency_key text, confirm boolean, waited_seconds double precision,
    age_seconds double precision, snoozes integer, progress jsonb, lane text, next_start_seconds double precision
);

-- Picks and locks the next jobs of a topic without lanes, in their order: `room` of them at the most.
CREATE FUNCTION pulse.pick_in_order(
    of_topic text, room integer, most_bytes bigint, OUT tids tid[], OUT confirmed boolean[], OUT bytes bigint
) LANGUAGE sql AS $$
    WITH candidate AS MATERIALIZED (
        SELECT job.ctid AS tid, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
            octet_length(job.payload) AS bytes
        FROM pulse.jobs AS job
        WHERE job.topic = of_topic AND job.queued AND job.tier IS NULL AND job.locked_by IS NULL
          AND (job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())
        ORDER BY job.priority DESC, job.submitted_at, job.id
        LIMIT room
        FOR UPDATE OF job SKIP LOCKED
    ),
    ranked AS (
        SELECT candidate.*, row_number() OVER line AS slot, sum(candidate.bytes) OVER line - candidate.bytes AS bytes_before
        FROM candidate
        WINDOW line AS (ROWS UNBOUNDED PRECEDING)
    )
    SELECT
        array_agg(picked.tid ORDER BY picked.slot), array_agg(picked.must_confirm ORDER BY picked.slot), sum(picked.bytes)
    FROM ranked AS picked
    WHERE picked.slot = 1 OR picked.bytes_before < most_bytes
$$;

-- The only job of a lane that may start now, where order is kept. First that which is tried again, if there is one, and holds
-- the lane: of several the first in order, which ran at once before order was kept. Else the first in the lane, whether or not
-- another session has it locked: unless one that comes before it could not be put into the lane yet, because of such a lock or a
-- large backlog, of which the first hundred are looked at; or unless the lane is yet to be ranked anew.
CREATE FUNCTION pulse.next_in_order(
    policy pulse.flow_policies, of_lane text, tried uuid[], OUT id uuid, OUT holds boolean, OUT may_start boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    head record;
BEGIN
    SELECT job.id, true, job.queued AND job.tier IS NOT NULL INTO id, holds, may_start
    FROM pulse.jobs AS job
    WHERE job.id = ANY(tried) AND job.finished_at IS NULL
    ORDER BY job.priority DESC, job.submitted_at, job.id
    LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT job.id, job.tier, job.rank_at INTO head
    FROM pulse.jobs AS job
    WHERE job.topic = policy.topic AND job.lane = of_lane AND job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
      AND (job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())
    ORDER BY job.tier DESC, job.rank_at, job.id
    LIMIT 1;
    IF FOUND THEN
        SELECT head.id, false, COALESCE(of_lane < policy.ranked_lane, true) AND NOT EXISTS (
            SELECT
            FROM (
                SELECT job.id, job.lane, row_number() OVER () AS place,
                    CASE WHEN policy.aging IS NULL THEN job.priority ELSE 0 END AS tier,
                    pulse.rank_of(job.submitted_at, job.priority, policy.aging) AS rank_at
                FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND job.queued AND job.tier IS NULL AND job.locked_by IS NULL
                ORDER BY job.priority DESC, job.submitted_at, job.id
                LIMIT 100
            ) AS outside
            WHERE (outside.lane = of_lane OR outside.place = 100)
              AND (outside.tier > head.tier
                   OR outside.tier = head.tier AND (outside.rank_at, outside.id) < (head.rank_at, head.id))
        ) INTO id, holds, may_start;
    END IF;
END
$$;

-- Picks and locks the next jobs of a topic with lanes: those for which there are places at the head of the line. A lane
-- without a limit has one place, which stands for its turn: it gives a quantum of jobs, times its weight, and goes to the end of
-- the line at once. If `room` ends before its turn does, it stays at the head with the rest, which the next claims take first: so
-- lanes start jobs by their weights, whatever the room of each claim. If there is room for a turn of each lane of the line, there are
-- further rounds of turns. has_more: a lane could have given more.
CREATE FUNCTION pulse.pick_by_turns(
    policy pulse.flow_policies, stamp timestamptz, room integer, most_bytes bigint,
    OUT tids tid[], OUT confirmed boolean[], OUT bytes bigint, OUT has_more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    hand   text[];      -- lanes
    places integer[];   -- of each of them, and so on
    shares integer[];   -- jobs that it may give
    waits  uuid[];      -- the only job that it may give
    holds  boolean[];   -- which is tried again, and holds its lane
    found  integer[];
    given  integer[];
    ids    bigint[];    -- where it stood in the line
    spots  integer[];
    credit integer[];   -- what was left of its turn
    dues   integer[];   -- jobs of the turns that it has begun
    late   boolean[];   -- it has begun one turn more than lanes behind it
    owners integer[];   -- of each job: the number of its lane in hand
    owner  integer;
    jobs   integer;     -- how many of them the bytes permit
    free   integer;     -- places of all lanes in hand
    cut_at integer;     -- the lane at which the room or the bytes ended
    -- A turn costs as much as a job. So it is worth a few of them where a claim has many slots and there are many lanes.
    quantum integer := CASE WHEN room < 64 THEN 1 ELSE 4 END;
    turns  integer := CASE WHEN policy.per_lane IS NULL THEN (room + quantum - 1) / quantum ELSE room END;
BEGIN
    -- The places of lanes whose time has come.
    SELECT array_agg(due.lane), array_agg(due.waiting) INTO hand, places
    FROM (
        SELECT lane.lane, lane.waiting
        FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.next_at <= stamp
        ORDER BY lane.next_at
        LIMIT 1000
    ) AS due;
    IF hand IS NOT NULL THEN
        UPDATE pulse.lanes AS lane SET waiting = 0, next_at = NULL WHERE lane.topic = policy.topic AND lane.lane = ANY(hand);
        PERFORM pulse.line_up(policy.topic, hand, places);
    END IF;

    -- The lanes behind the last turn of a row stay where they are.
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
        array_agg(LEAST(lane.places, room) ORDER BY lane.number),
        array_fill(NULL::uuid, ARRAY[count(*)::int]), array_fill(false, ARRAY[count(*)::int]),
        array_fill(0, ARRAY[count(*)::int]), array_fill(0, ARRAY[count(*)::int]), sum(lane.places),
        array_agg(lane.id ORDER BY lane.number), array_agg(lane.spot ORDER BY lane.number),
        array_agg(lane.credit ORDER BY lane.number)
    INTO hand, places, shares, waits, holds, found, given, free, ids, spots, credit
    FROM (
        SELECT min(turn.number) AS number, turn.name, sum(turn.places)::int AS places, min(turn.id) AS id,
            min(turn.spot) AS spot, sum(turn.credit)::int AS credit
        FROM turn
        WHERE turn.number <= turns
        GROUP BY turn.name
    ) AS lane;
    IF hand IS NULL THEN
        RETURN;
    END IF;
    IF cardinality(hand) < turns THEN   -- the whole line
        quantum := 1;
    END IF;

    -- For lanes with a limit alone, the places say it all. Others have to be looked up.
    IF policy.per_lane IS NULL OR policy.shrinks OR policy.ordered OR policy.lane_starts IS NOT NULL THEN
        WITH lane AS (
            SELECT
                turn.number, job.id AS waits_for, job.holds, COALESCE(known.weight, 1) * quantum AS turn,
                CASE
                    WHEN NOT job.may_start THEN 0
                    WHEN policy.per_lane IS NULL THEN COALESCE(turn.credit, COALESCE(known.weight, 1) * quantum)
                    WHEN turn.lane = '' THEN known.weight * ((room + cardinality(hand) - 1) / cardinality(hand))
                    ELSE turn.places - GREATEST(0, known.held - pulse.places_of(policy, known.max_running))
                END AS begun,
                CASE WHEN policy.lane_starts IS NOT NULL AND turn.lane <> '' THEN policy.lane_starts - pulse.slices_sum(
                    pulse.slices_at(known.slices, known.slice, pulse.slice_of(stamp, policy.lane_period, known.slice)))
                END AS rate_left
            FROM unnest(hand, places, credit) WITH ORDINALITY AS turn (lane, places, credit, number)
            LEFT JOIN LATERAL (
                SELECT * FROM pulse.lanes AS lane WHERE lane.topic = policy.topic AND lane.lane = turn.lane LIMIT 1
            ) AS known ON true
            LEFT JOIN LATERAL (
                SELECT next.*
                FROM pulse.next_in_order(policy, turn.lane, known.waits_for) AS next
                WHERE policy.ordered AND turn.lane <> ''
                LIMIT 1     -- else it is called for the lanes of all policies
            ) AS job ON true
        ),
        -- The turns that have begun. If they are those of the whole line and leave room, all lanes get further rounds.
        line AS (
            SELECT
                lane.*, sum(lane.turn) OVER () AS round,
                sum(lane.turn) OVER (ORDER BY lane.number ROWS UNBOUNDED PRECEDING) - lane.turn AS before,
                CASE WHEN policy.per_lane IS NULL AND cardinality(hand) < turns
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
        INTO shares, dues, late, waits, holds
        FROM shared;
    END IF;

    -- A nested loop in the order of the line: nothing is sorted or joined, though there may be a thousand lanes.
    WITH line AS MATERIALIZED (
        SELECT turn.number::int, job.*
        FROM unnest(hand, shares, waits) WITH ORDINALITY AS turn (lane, share, waits_for, number)
        CROSS JOIN LATERAL (
            SELECT job.ctid AS tid, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
                octet_length(job.payload) AS bytes
            FROM pulse.jobs AS job
            WHERE job.topic = policy.topic AND job.lane = turn.lane AND job.queued AND job.tier IS NOT NULL
              AND job.locked_by IS NULL
              AND (job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())
              AND (turn.waits_for IS NULL OR job.id = turn.waits_for)
            ORDER BY job.tier DESC, job.rank_at, job.id
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
        -- The first is picked in any case.
        GREATEST(1, count(*) FILTER (WHERE dealt.bytes_so_far - dealt.bytes < most_bytes)),
        GREATEST(min(dealt.bytes_so_far), sum(dealt.bytes) FILTER (WHERE dealt.bytes_so_far - dealt.bytes < most_bytes))
    INTO tids, confirmed, owners, jobs, bytes
    FROM dealt;
    FOR place IN 1 .. COALESCE(cardinality(owners), 0) LOOP
        owner := owners[place];
        found[owner] := found[owner] + 1;
        IF place <= jobs THEN
            given[owner] := given[owner] + 1;
        END IF;
    END LOOP;
    IF cardinality(owners) = room OR jobs < cardinality(owners) THEN
        cut_at := owners[jobs];
    END IF;
    IF jobs < cardinality(owners) THEN
        tids := tids[1:jobs];
        confirmed := confirmed[1:jobs];
    END IF;

    IF owners IS NOT NULL AND jobs = free AND '' <> ALL(hand) AND policy.per_lane IS NOT NULL
        AND policy.lane_starts IS NULL AND NOT policy.ordered AND NOT policy.shrinks
    THEN
        has_more := true;   -- all places were used
    ELSE
        -- What becomes of the places that were not used: they wait, go to the end of the line, or are no longer in use.
        WITH lane AS MATERIALIZED (
            SELECT
                turn.*,
                CASE WHEN policy.per_lane IS NULL OR turn.lane = '' THEN turn.places ELSE turn.places - turn.given END AS rest,
                CASE
                    -- One stands for a turn. The others are from when the lane had a limit.
                    WHEN policy.per_lane IS NULL OR turn.lane = '' THEN turn.places - 1
                    WHEN policy.shrinks AND turn.lane <> ''
                    THEN LEAST(turn.places, GREATEST(0, known.held - pulse.places_of(policy, known.max_running)))
                    ELSE 0
                END AS surplus,
                -- A lane that could give no more before the room ended has had its turn.
                CASE
                    WHEN policy.per_lane IS NOT NULL OR turn.given < turn.share AND (cut_at IS NULL OR turn.number < cut_at) THEN 0
                    ELSE turn.due - turn.given
                END AS credit,
                CASE WHEN policy.lane_starts IS NOT NULL
                    THEN pulse.slice_of(stamp, policy.lane_period, known.slice)
                END AS slice,
                CASE WHEN policy.lane_starts IS NOT NULL THEN pulse.slices_with(
                    pulse.slices_at(known.slices, known.slice, pulse.slice_of(stamp, policy.lane_period, known.slice)), turn.given
                ) END AS slices
            FROM unnest(hand, places, waits, holds, found, given, ids, spots, shares, dues, late) WITH ORDINALITY
                AS turn (lane, places, waits_for, holds, found, given, id, spot, share, due, late, number)
            LEFT JOIN LATERAL (
                SELECT *
                FROM pulse.lanes AS lane
                WHERE lane.topic = policy.topic AND lane.lane = turn.lane
                  AND (policy.shrinks OR policy.lane_starts IS NOT NULL)
                LIMIT 1
            ) AS known ON true
            WHERE policy.per_lane IS NULL OR turn.lane = '' OR turn.given < turn.places
               OR policy.lane_starts IS NOT NULL OR policy.ordered
        ),
        unused AS MATERIALIZED (
            SELECT
                lane.*,
                CASE
                    WHEN lane.rest <= lane.surplus THEN NULL
                    WHEN lane.waits_for IS NOT NULL AND lane.found = 0 THEN (
                        SELECT GREATEST(job.next_run_at, stamp + interval '100 milliseconds')
                        FROM pulse.jobs AS job
                        WHERE job.id = lane.waits_for
                    )
                    WHEN policy.lane_starts IS NOT NULL AND lane.lane <> '' AND policy.lane_starts <= pulse.slices_sum(lane.slices)
                    THEN pulse.slices_free_at(lane.slices, lane.slice, policy.lane_period)
                END AS waits_until,
                -- A lane from which everything was taken that could be locked may have a job that another session has locked.
                CASE WHEN lane.rest > lane.surplus THEN lane.found > lane.given OR (
                    SELECT count(*)
                    FROM (
                        SELECT FROM pulse.jobs AS job
                        WHERE job.topic = policy.topic AND job.lane = lane.lane AND job.queued AND job.tier IS NOT NULL
                          AND job.locked_by IS NULL
                        ORDER BY job.tier DESC, job.rank_at, job.id
                        LIMIT lane.given + 1
                    ) AS job
                ) > lane.given ELSE false END AS has_work
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
                CASE WHEN unused.given > 0 AND unused.holds THEN ARRAY[unused.waits_for] END,   -- no longer
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
        -- Unless nothing came of it: what is left may be jobs that another session has locked.
        SELECT
            owners IS NOT NULL OR bool_or(NOT unused.has_work AND unused.waits_until IS NULL),
            array_agg(unused.lane ORDER BY unused.late, unused.number)
                FILTER (WHERE unused.has_work AND unused.waits_until IS NULL AND unused.credit = 0),
            array_agg(unused.rest - unused.surplus ORDER BY unused.late, unused.number)
                FILTER (WHERE unused.has_work AND unused.waits_until IS NULL AND unused.credit = 0)
        INTO has_more, hand, places
        FROM unused;
        IF hand IS NOT NULL THEN
            PERFORM pulse.line_up(policy.topic, hand, places);
        END IF;
    END IF;
    has_more := COALESCE(has_more, false) AND EXISTS (SELECT FROM pulse.lane_line AS next WHERE next.topic = policy.topic);
END
$$;

-- Claims jobs of governed topics, the topics in the order of `asked`, as many as their limits, rates and lanes permit.
--
-- The turnstiles are locked first, and waited for only while it holds none. Each statement of this function and of those that it calls
-- has a snapshot of its own: what is counted is counted once the lock is held, so that every claim before this one is seen.
-- In one statement, a limit of ten let forty run.
--
-- entered: the lanes that new jobs of the only topic have entered in this statement (hand_over_governed); else NULL. Then it waits for
-- no turnstile: the session that has it may wait for the table, or for one of those jobs.
CREATE FUNCTION pulse.claim_governed(
    asked text[], most integer, slots integer[], workers text[], confirms boolean[], lease interval, most_bytes bigint,
    entered text[]
) RETURNS SETOF pulse.governed_claim LANGUAGE plpgsql AS $$
DECLARE
    names      text[];
    locked     text[];
    turnstile  pulse.turnstiles;
    before     pulse.turnstiles;
    policy     pulse.flow_policies;
    taken      integer := 0;            -- slots
    bytes_left bigint := most_bytes;
    room       integer;
    next_start timestamptz;
    stamp      timestamptz;
    held_until timestamptz;
    noticed    record;
    more_enter boolean;                 -- jobs of the topic may have to be put into lanes yet, or notices to be taken
    picked     record;
    got        integer;
BEGIN
    IF cardinality(asked) = 1 THEN
        SELECT ARRAY[known.turnstile] INTO names FROM pulse.flow_policies AS known WHERE known.topic = asked[1];
    ELSE
        SELECT array_agg(passed.name ORDER BY passed.place) INTO names
        FROM (
            SELECT known.turnstile AS name, min(wanted.place) AS place
            FROM unnest(asked) WITH ORDINALITY AS wanted (topic, place)
            JOIN pulse.flow_policies AS known ON known.topic = wanted.topic
            GROUP BY known.turnstile
        ) AS passed;
    END IF;
    -- Those that another session has locked are left for the next claim. It waits for one of them only if there is no other.
    SELECT array_agg(free.name) INTO locked
    FROM (
        SELECT known.name FROM pulse.turnstiles AS known WHERE known.name = ANY(names)
        ORDER BY known.name
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free;
    IF locked IS NULL AND entered IS NULL THEN
        PERFORM FROM pulse.turnstiles AS known WHERE known.name = names[1] FOR NO KEY UPDATE;
        locked := names[1:1];
    END IF;
    locked := COALESCE(locked, '{}');
    IF cardinality(locked) < cardinality(names) THEN
        RETURN QUERY
            SELECT NULL::int, NULL::int, NULL::uuid, known.topic, NULL::bytea, NULL::int, NULL::int, NULL::int, NULL::jsonb,
                NULL::text, NULL::boolean, NULL::float8, NULL::float8, NULL::int, NULL::jsonb, NULL::text, 0::float8
            FROM pulse.flow_policies AS known
            WHERE known.topic = ANY(asked) AND known.turnstile = ANY(names) AND known.turnstile <> ALL(locked);
        IF entered <> '{}' THEN
            PERFORM pulse.notice_lanes(known, entered) FROM pulse.flow_policies AS known WHERE known.topic = ANY(asked);
        END IF;
    END IF;
    -- Not in the order of the locks: the topics of the first name would take the slots of all others, each time.
    FOR turnstile IN
        SELECT * FROM pulse.turnstiles AS known WHERE known.name = ANY(locked) ORDER BY array_position(names, known.name)
    LOOP
        before := turnstile;
        SELECT * INTO noticed FROM pulse.take_notices(turnstile.name);
        turnstile.held := turnstile.held - noticed.ended;
        IF entered <> '{}' THEN
            PERFORM pulse.open_lanes(known, entered) FROM pulse.flow_policies AS known WHERE known.topic = ANY(asked);
        END IF;
        FOR policy IN
            SELECT known.*
            FROM unnest(asked) WITH ORDINALITY AS wanted (topic, place)
            JOIN pulse.flow_policies AS known ON known.topic = wanted.topic AND known.turnstile = turnstile.name
            WHERE NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)
              AND NOT EXISTS (
                  SELECT FROM pulse.paused_topics AS switch WHERE switch.topic = wanted.topic AND switch.paused)
            ORDER BY wanted.place
        LOOP
            room := LEAST(most - taken, turnstile.max_running - turnstile.held);
            next_start := NULL;
            stamp := clock_timestamp();
            IF turnstile.starts IS NOT NULL THEN
                turnstile.slices := pulse.slices_at(
                    turnstile.slices, turnstile.slice, pulse.slice_of(stamp, turnstile.period, turnstile.slice));
                turnstile.slice := pulse.slice_of(stamp, turnstile.period, turnstile.slice);
                room := LEAST(room, turnstile.starts - pulse.slices_sum(turnstile.slices));
            END IF;
            -- A topic without limits cannot be held.
            held_until := CASE WHEN NOT policy.retired THEN GREATEST(turnstile.closed_until, policy.closed_until) END;
            IF held_until > stamp THEN
                room := 0;
            END IF;
            more_enter := noticed.has_more;
            -- Rarely there is a job to move: to look for one costs less than the statement that moves them.
            IF policy.laned THEN
                PERFORM FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND job.queued AND job.tier IS NULL AND job.locked_by IS NULL
                LIMIT 1;
                IF FOUND THEN
                    more_enter := pulse.enter_lanes(policy) OR more_enter;
                END IF;
                IF policy.ranked_lane IS NOT NULL THEN
                    more_enter := pulse.rank_anew(policy) OR more_enter;
                    SELECT * INTO policy FROM pulse.flow_policies AS known WHERE known.topic = policy.topic;
                END IF;
            ELSE
                PERFORM FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
                LIMIT 1;
                IF FOUND THEN
                    PERFORM pulse.leave_lanes(policy.topic);
                END IF;
            END IF;
            IF room > 0 AND (bytes_left > 0 OR taken = 0) THEN
                IF policy.laned THEN
                    SELECT * INTO picked FROM pulse.pick_by_turns(policy, stamp, room, bytes_left);
                ELSE
                    SELECT *, false AS has_more INTO picked FROM pulse.pick_in_order(policy.topic, room, bytes_left);
                END IF;
                IF picked.tids IS NOT NULL THEN
                    -- As claim_batch does, for the slots behind the first `taken`. Their start is the moment by which their rates
                    -- were counted. Not in a function: its rows would be stored once more.
                    RETURN QUERY
                    WITH leased AS (
                        UPDATE pulse.jobs AS job
                        SET status = 'RUNNING',
                            attempts = job.attempts + 1,
                            locked_by = workers[slots[taken + pick.place]],
                            lease_until = clock_timestamp() + lease,
                            started_at = stamp,
                            delivered = NOT confirms[slots[taken + pick.place]],
                            turnstile = turnstile.name,
                            lane_held = CASE WHEN policy.per_lane IS NOT NULL AND job.lane <> '' THEN job.lane END
                        FROM unnest(picked.tids, picked.confirmed) WITH ORDINALITY AS pick (tid, must_confirm, place)
                        WHERE job.ctid = pick.tid
                        RETURNING
                            (taken + pick.place)::int AS slot, slots[taken + pick.place] AS worker, job.id, job.topic,
                            job.payload, job.attempts, job.priority, job.max_attempts, job.metadata, job.idempotency_key,
                            pick.must_confirm AND NOT job.delivered AS confirm,
                            GREATEST(0, date_part('epoch', job.started_at - job.next_run_at)) AS waited_seconds,
                            NULL::float8 AS age_seconds, job.snoozes, job.progress, job.lane,
                            NULL::float8 AS next_start_seconds
                    ),
                    checked AS (
                        INSERT INTO pulse.lease_checks (check_at, settled, ids)
                        SELECT now() + LEAST(lease, interval '2 seconds'), false, array_agg(leased.id)
                        FROM leased
                        HAVING count(*) > 0
                    )
                    SELECT * FROM leased;
                    GET DIAGNOSTICS got = ROW_COUNT;
                    taken := taken + got;
                    bytes_left := bytes_left - picked.bytes;
                    turnstile.held := turnstile.held + got;
                    IF turnstile.starts IS NOT NULL THEN
                        turnstile.slices := pulse.slices_with(turnstile.slices, got);
                        IF policy.turnstile <> policy.topic THEN
                            UPDATE pulse.flow_policies AS known
                            SET slice = turnstile.slice,
                                slices = pulse.slices_with(pulse.slices_at(
                                    COALESCE(known.slices, '{}'), COALESCE(known.slice, 0), turnstile.slice), got)
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
            -- Nothing more starts before the rate has room, also if this claim has spent it; nor before a hold ends.
            IF turnstile.starts IS NOT NULL AND turnstile.starts <= pulse.slices_sum(turnstile.slices) THEN
                next_start := GREATEST(stamp, pulse.slices_free_at(turnstile.slices, turnstile.slice, turnstile.period));
            END IF;
            IF held_until > stamp THEN
                next_start := GREATEST(next_start, held_until);
            END IF;
            -- The lanes of a large backlog fill up meanwhile: the jobs of another one may be behind it.
            IF more_enter THEN
                next_start := LEAST(next_start, clock_timestamp() + interval '20 milliseconds');
            END IF;
            IF next_start IS NOT NULL OR turnstile.held >= turnstile.max_running THEN
                RETURN QUERY SELECT
                    NULL::int, NULL::int, NULL::uuid, policy.topic, NULL::bytea, NULL::int, NULL::int, NULL::int, NULL::jsonb,
                    NULL::text, NULL::boolean, NULL::float8, NULL::float8, NULL::int, NULL::jsonb, NULL::text,
                    CASE
                        WHEN turnstile.held >= turnstile.max_running AND NOT more_enter THEN 'infinity'::float8
                        ELSE GREATEST(0, date_part('epoch', next_start - clock_timestamp()))
                    END;
            END IF;
        END LOOP;
        IF turnstile IS DISTINCT FROM before THEN
            UPDATE pulse.turnstiles AS known
            SET held = turnstile.held, slice = turnstile.slice, slices = turnstile.slices
            WHERE known.name = turnstile.name;
        END IF;
    END LOOP;
END
$$;

-- The jobs that run and are counted at a turnstile, by the lease checks. ADR-0056
CREATE VIEW pulse.governed_runs AS
SELECT job.id, job.topic, job.turnstile, job.lane, job.lane_held
FROM pulse.jobs AS job
WHERE job.locked_by IS NOT NULL AND job.turnstile IS NOT NULL
  AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));

-- Counts the places of a topic's lanes anew, with its turnstile locked: after a change of their limits, or of one that another
-- session made by hand. One statement, so that no place is seen twice, or not at all.
CREATE FUNCTION pulse.count_lanes(policy pulse.flow_policies) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH emptied AS (
        DELETE FROM pulse.lane_line AS place WHERE place.topic = policy.topic RETURNING place.lanes, place.job_id
    )
    INSERT INTO pulse.lanes AS known (topic, lane, held, waits_for)
    SELECT policy.topic, counted.lane, sum(counted.held), array_agg(counted.job_id) FILTER (WHERE counted.job_id IS NOT NULL)
    FROM (
        SELECT run.lane_held AS lane, 1 AS held, NULL::uuid AS job_id
        FROM pulse.governed_runs AS run
        WHERE run.topic = policy.topic AND run.lane_held IS NOT NULL
        UNION ALL
        SELECT lane.lane, 0, NULL FROM pulse.lanes AS lane WHERE lane.topic = policy.topic
        UNION ALL
        -- It is tried again, and no other job of its lane may pass it.
        SELECT emptied.lanes[1], 0, emptied.job_id FROM emptied WHERE policy.ordered AND emptied.job_id IS NOT NULL
    ) AS counted
    GROUP BY counted.lane
    ON CONFLICT (topic, lane) DO UPDATE
    SET held = EXCLUDED.held, waiting = 0, next_at = NULL, waits_for = known.waits_for || EXCLUDED.waits_for;
    PERFORM pulse.notice_lanes(policy, ARRAY(SELECT lane.lane FROM pulse.lanes AS lane WHERE lane.topic = policy.topic));
    UPDATE pulse.flow_policies AS known
    SET shrinks = known.per_lane IS NOT NULL AND EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.lane <> '' AND lane.held > pulse.places_of(policy, lane.max_running))
    WHERE known.topic = policy.topic;
END
$$;

-- Has the lanes follow a change of their limits, with their turnstile locked: those with room open in the next claim, and those
-- that have too many places give them back. NULL: all of them.
CREATE FUNCTION pulse.limits_of_lanes_changed(policy pulse.flow_policies, of_lane text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pulse.notice_lanes(policy, ARRAY(
        SELECT lane.lane
        FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND (of_lane IS NULL OR lane.lane = of_lane) AND lane.lane <> ''
          AND lane.held > 0 AND lane.held < pulse.places_of(policy, lane.max_running)
    ));
    UPDATE pulse.flow_policies AS known
    SET shrinks = true
    WHERE known.topic = policy.topic AND NOT known.shrinks AND known.per_lane IS NOT NULL AND EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND (of_lane IS NULL OR lane.lane = of_lane) AND lane.lane <> ''
          AND lane.held > pulse.places_of(policy, lane.max_running));
END
$$;

-- Counts the runs of a turnstile anew, with the turnstile locked. One statement, as count_lanes.
CREATE FUNCTION pulse.count_runs(of_turnstile text) RETURNS void LANGUAGE sql AS $$
    UPDATE pulse.turnstiles AS turnstile
    SET held = (SELECT count(*) FROM pulse.governed_runs AS run WHERE run.turnstile = of_turnstile)
        + COALESCE((SELECT sum(notice.ended) FROM pulse.flow_notices AS notice WHERE notice.turnstile = of_turnstile), 0)
    WHERE turnstile.name = of_turnstile
$$;

-- Deletes a turnstile, which is locked, unless a topic passes it.
CREATE FUNCTION pulse.forget_turnstile(of_turnstile text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pulse.flow_policies AS policy WHERE policy.turnstile = of_turnstile) THEN
        DELETE FROM pulse.flow_notices AS notice WHERE notice.turnstile = of_turnstile;
        DELETE FROM pulse.turnstiles AS known WHERE known.name = of_turnstile;
    END IF;
END
$$;

-- Gives a topic a flow policy, or changes the one that it has. Numbers change at once. A topic that becomes governed, or whose
-- jobs are counted elsewhere or ranked otherwise from now on, has the table locked for a moment: what runs is counted, and
-- nothing starts or ends meanwhile. The turnstile is locked first, as in a claim.
CREATE FUNCTION pulse.govern(policy pulse.flow_policies, wanted pulse.turnstiles) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    before pulse.flow_policies;
    stile  pulse.turnstiles;
    came   pulse.turnstiles;    -- where the topic was counted before, if that was elsewhere
    stamp  timestamptz;
BEGIN
    INSERT INTO pulse.turnstiles (name) VALUES (wanted.name) ON CONFLICT DO NOTHING;
    SELECT * INTO before FROM pulse.flow_policies AS known WHERE known.topic = policy.topic;
    PERFORM FROM pulse.turnstiles AS known
    WHERE known.name IN (wanted.name, before.turnstile)
    ORDER BY known.name
    FOR NO KEY UPDATE;
    SELECT * INTO before FROM pulse.flow_policies AS known WHERE known.topic = policy.topic;
    SELECT * INTO stile FROM pulse.turnstiles AS known WHERE known.name = wanted.name;
    SELECT * INTO came FROM pulse.turnstiles AS known WHERE known.name = before.turnstile AND known.name <> wanted.name;
    -- A topic takes its starts and its hold along, and a rate that is removed leaves its starts: they count again with the next one.
    IF came.name <> policy.topic THEN
        came.slice := before.slice;
        came.slices := before.slices;
    END IF;
    wanted.period := COALESCE(wanted.period, stile.period, came.period);
    policy.lane_period := COALESCE(policy.lane_period, before.lane_period);
    IF wanted.period IS NOT NULL THEN
        stamp := clock_timestamp();
        wanted.slice := GREATEST(
            pulse.slice_of(stamp, wanted.period, CASE WHEN stile.period = wanted.period THEN stile.slice END),
            pulse.slice_of(stamp, wanted.period, CASE WHEN came.period = wanted.period THEN came.slice END));
        stile.slices := pulse.slices_in(stile.slices, stile.slice, stile.period, wanted.slice, wanted.period);
        came.slices := pulse.slices_in(
            COALESCE(came.slices, '{}'), COALESCE(came.slice, 0), came.period, wanted.slice, wanted.period);
    END IF;
    UPDATE pulse.turnstiles AS known
    SET max_running = wanted.max_running,
        starts = wanted.starts,
        period = wanted.period,
        slice = COALESCE(wanted.slice, known.slice),
        slices = COALESCE(pulse.slices_of_both(stile.slices, came.slices), '{}')
    WHERE known.name = wanted.name;
    UPDATE pulse.flow_policies AS known
    SET slice = wanted.slice,
        slices = pulse.slices_in(known.slices, known.slice, stile.period, wanted.slice, wanted.period)
    WHERE known.turnstile = wanted.name AND known.slices IS NOT NULL AND stile.period <> wanted.period;
    IF came.name IS NOT NULL THEN
        policy.closed_until := GREATEST(before.closed_until, came.closed_until);
        IF policy.turnstile <> policy.topic THEN
            policy.slice := wanted.slice;
            policy.slices := came.slices;
        END IF;
    END IF;
    INSERT INTO pulse.flow_policies AS known SELECT (policy).*
    ON CONFLICT (topic) DO UPDATE
    SET turnstile = EXCLUDED.turnstile,
        laned = EXCLUDED.laned,
        per_lane = EXCLUDED.per_lane,
        lane_starts = EXCLUDED.lane_starts,
        lane_period = EXCLUDED.lane_period,
        ordered = EXCLUDED.ordered,
        aging = EXCLUDED.aging,
        retired = EXCLUDED.retired,
        slice = CASE WHEN known.turnstile = EXCLUDED.turnstile THEN known.slice ELSE EXCLUDED.slice END,
        slices = CASE WHEN known.turnstile = EXCLUDED.turnstile THEN known.slices ELSE EXCLUDED.slices END,
        closed_until = CASE WHEN known.turnstile = EXCLUDED.turnstile THEN known.closed_until ELSE EXCLUDED.closed_until END;
    IF before.topic IS NULL OR before.turnstile <> policy.turnstile OR before.laned <> policy.laned
        OR (before.per_lane IS NULL) <> (policy.per_lane IS NULL) OR before.aging IS DISTINCT FROM policy.aging
    THEN
        LOCK TABLE pulse.jobs IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO pulse.paused_topics AS known (topic, paused, governed) VALUES (policy.topic, false, true)
        ON CONFLICT (topic) DO UPDATE SET governed = true;
        IF before.laned AND policy.laned AND before.per_lane IS NOT NULL AND policy.per_lane IS NULL THEN
            -- Running jobs have no places any more. Those in the line stand for turns, one of each lane.
            WITH running AS MATERIALIZED (
                SELECT run.lane_held AS lane, count(*)::int AS jobs
                FROM pulse.governed_runs AS run
                WHERE run.topic = policy.topic AND run.lane_held IS NOT NULL
                GROUP BY run.lane_held
            ),
            counted AS (
                INSERT INTO pulse.lanes AS known (topic, lane, held)
                SELECT policy.topic, running.lane, -running.jobs FROM running
                ON CONFLICT (topic, lane) DO UPDATE SET held = known.held + EXCLUDED.held
            )
            INSERT INTO pulse.flow_notices (turnstile, topic, lanes, ended)
            SELECT policy.turnstile, policy.topic, ARRAY[running.lane], 0 FROM running;
        END IF;
        UPDATE pulse.jobs AS job
        SET turnstile = policy.turnstile,
            lane = CASE WHEN policy.laned THEN COALESCE(job.lane, '') ELSE job.lane END,
            lane_held = CASE WHEN policy.per_lane IS NOT NULL AND job.lane <> '' THEN job.lane END
        WHERE job.topic = policy.topic AND job.locked_by IS NOT NULL
          AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));
        UPDATE pulse.flow_notices AS notice
        SET turnstile = policy.turnstile
        WHERE notice.topic = policy.topic AND notice.lanes IS NOT NULL;
        PERFORM pulse.count_runs(known.name)
        FROM pulse.turnstiles AS known
        WHERE known.name IN (policy.turnstile, before.turnstile);
        PERFORM pulse.forget_turnstile(before.turnstile);
    END IF;
    IF policy.laned AND (before.aging IS DISTINCT FROM policy.aging OR NOT before.laned) THEN
        -- No statement is under way that ranks by the aging of before: the table is locked.
        UPDATE pulse.flow_policies AS known
        SET ranked_lane = '', ranked_tier = 2147483647, ranked_at = '-infinity', ranked_id = '00000000-0000-0000-0000-000000000000'
        WHERE known.topic = policy.topic AND before.topic IS NOT NULL;
    END IF;
    IF policy.laned AND before.laned IS NOT TRUE THEN
        PERFORM pulse.count_lanes(policy);
    ELSIF policy.laned AND policy.per_lane IS NOT NULL THEN
        -- A turn is a place from now on, and each running job has one.
        INSERT INTO pulse.lanes AS known (topic, lane, held)
        SELECT policy.topic, run.lane_held, count(*)
        FROM pulse.governed_runs AS run
        WHERE before.per_lane IS NULL AND run.topic = policy.topic AND run.lane_held IS NOT NULL
        GROUP BY run.lane_held
        ON CONFLICT (topic, lane) DO UPDATE SET held = known.held + EXCLUDED.held;
        IF (before.per_lane, before.ordered) IS DISTINCT FROM (policy.per_lane, policy.ordered) THEN
            PERFORM pulse.limits_of_lanes_changed(policy, NULL);
        END IF;
    ELSIF before.laned AND NOT policy.laned THEN
        DELETE FROM pulse.lane_line AS place WHERE place.topic = policy.topic;
        DELETE FROM pulse.lanes AS lane WHERE lane.topic = policy.topic AND lane.slices = '{}';
        UPDATE pulse.lanes AS lane
        SET held = 0, weight = 1, max_running = NULL, waiting = 0, next_at = NULL, waits_for = NULL
        WHERE lane.topic = policy.topic;
    END IF;
    -- The same for the slices of lanes. Those that wait for the rate from before look at the new one with the next claim.
    IF before.lane_period <> policy.lane_period THEN
        UPDATE pulse.lanes AS lane
        SET slice = pulse.slice_of(clock_timestamp(), policy.lane_period, NULL),
            slices = pulse.slices_in(lane.slices, lane.slice, before.lane_period, 0, policy.lane_period)
        WHERE lane.topic = policy.topic AND lane.slices <> '{}';
    END IF;
    IF (before.lane_starts, before.lane_period) IS DISTINCT FROM (policy.lane_starts, policy.lane_period) THEN
        UPDATE pulse.lanes AS lane
        SET next_at = clock_timestamp()
        WHERE lane.topic = policy.topic AND lane.next_at IS NOT NULL;
    END IF;
END
$$;

-- Makes a topic whose policy is retired a plain one again, once no job of it stands in a lane, and no start and no hold would count
-- if it got a policy again. Returns whether it did.
CREATE FUNCTION pulse.ungovern(of_topic text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    policy pulse.flow_policies;
BEGIN
    PERFORM FROM pulse.turnstiles AS known
    WHERE known.name = (SELECT own.turnstile FROM pulse.flow_policies AS own WHERE own.topic = of_topic)
    FOR NO KEY UPDATE;
    SELECT * INTO policy FROM pulse.flow_policies AS known WHERE known.topic = of_topic AND known.retired;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pulse.leave_lanes(of_topic);
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
    LIMIT 1;
    IF FOUND THEN
        RETURN false;
    END IF;
    PERFORM FROM pulse.turnstiles AS known
    WHERE known.name = policy.turnstile
      AND NOT EXISTS (SELECT FROM pulse.flow_policies AS other WHERE other.turnstile = known.name AND other.topic <> of_topic)
      AND (GREATEST(known.closed_until, policy.closed_until) > clock_timestamp() OR pulse.slices_sum(pulse.slices_at(
          known.slices, known.slice, pulse.slice_of(clock_timestamp(), known.period, known.slice))) > 0);
    IF FOUND OR EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = of_topic AND lane.slices <> '{}' AND lane.used_at > clock_timestamp() - policy.lane_period * 1.2)
    THEN
        RETURN false;
    END IF;
    -- Once the table is locked, no statement is under way that knows of the lanes.
    LOCK TABLE pulse.jobs IN SHARE ROW EXCLUSIVE MODE;
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
    LIMIT 1;
    IF FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM pulse.flow_policies AS known WHERE known.topic = of_topic;
    DELETE FROM pulse.lanes AS lane WHERE lane.topic = of_topic;
    -- It may be paused or resumed at this moment.
    PERFORM FROM pulse.paused_topics AS switch WHERE switch.topic = of_topic FOR UPDATE;
    DELETE FROM pulse.paused_topics AS switch WHERE switch.topic = of_topic AND NOT switch.paused;
    UPDATE pulse.paused_topics AS switch SET governed = false WHERE switch.topic = of_topic;
    UPDATE pulse.jobs AS job
    SET turnstile = NULL, lane_held = NULL
    WHERE job.topic = of_topic AND job.locked_by IS NOT NULL
      AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));
    DELETE FROM pulse.flow_notices AS notice WHERE notice.topic = of_topic;
    PERFORM pulse.count_runs(policy.turnstile);
    PERFORM pulse.forget_turnstile(policy.turnstile);
    RETURN true;
END
$$;

-- Compares the counts with what runs. At every moment they agree: whatever changes one changes the other in the same
-- statement. Those that do not were changed by hand, and are counted anew. Returns how many turnstiles and lanes that were.
CREATE FUNCTION pulse.sweep_flow() RETURNS TABLE (turnstiles integer, lanes integer) LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    turnstiles := 0;
    lanes := 0;
    FOR wrong IN
        SELECT counted.name
        FROM (
            SELECT known.name, known.held FROM pulse.turnstiles AS known
            UNION ALL
            SELECT run.turnstile, -1 FROM pulse.governed_runs AS run
            UNION ALL
            SELECT notice.turnstile, -notice.ended FROM pulse.flow_notices AS notice
        ) AS counted
        GROUP BY counted.name
        HAVING sum(counted.held) <> 0 AND EXISTS (SELECT FROM pulse.turnstiles AS known WHERE known.name = counted.name)
        ORDER BY counted.name
    LOOP
        PERFORM FROM pulse.turnstiles AS known WHERE known.name = wrong.name FOR NO KEY UPDATE;
        PERFORM pulse.count_runs(wrong.name);
        turnstiles := turnstiles + 1;
    END LOOP;
    FOR wrong IN
        SELECT policy, count(*) AS lanes
        FROM (
            SELECT counted.topic, counted.lane
            FROM (
                SELECT known.topic, known.lane, known.held - known.waiting AS held FROM pulse.lanes AS known
                UNION ALL
                SELECT run.topic, run.lane_held, -1 FROM pulse.governed_runs AS run WHERE run.lane_held IS NOT NULL
                UNION ALL
                SELECT place.topic, lane.name, -place.places
                FROM pulse.lane_line AS place
                CROSS JOIN LATERAL unnest(place.lanes) AS lane (name)
            ) AS counted
            GROUP BY counted.topic, counted.lane
            HAVING sum(counted.held) <> 0
        ) AS differing
        JOIN pulse.flow_policies AS policy ON policy.topic = differing.topic AND policy.laned
        GROUP BY policy
    LOOP
        PERFORM FROM pulse.turnstiles AS known WHERE known.name = (wrong.policy).turnstile FOR NO KEY UPDATE;
        PERFORM pulse.count_lanes(wrong.policy);
        lanes := lanes + wrong.lanes;
    END LOOP;
    -- No rate takes longer than its period, the margin and a slice to have room again: the clock was set back.
    UPDATE pulse.lanes AS lane
    SET next_at = clock_timestamp()
    FROM pulse.flow_policies AS policy
    WHERE policy.topic = lane.topic AND lane.waits_for IS NULL
      AND lane.next_at > clock_timestamp() + COALESCE(policy.lane_period * 1.2, interval '0') + interval '1 second';
    UPDATE pulse.flow_policies AS policy
    SET shrinks = false
    WHERE policy.shrinks AND NOT EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = policy.topic AND lane.lane <> '' AND lane.held > pulse.places_of(policy, lane.max_running));
    RETURN NEXT;
END
$$;

-- Sets what holds for one lane instead of the policy. NULL: the limit of the policy. Returns whether the topic has lanes.
CREATE FUNCTION pulse.set_lane(of_topic text, of_lane text, new_weight integer, new_limit integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    policy pulse.flow_policies;
BEGIN
    PERFORM FROM pulse.turnstiles AS known
    WHERE known.name = (SELECT own.turnstile FROM pulse.flow_policies AS own WHERE own.topic = of_topic)
    FOR NO KEY UPDATE;
    SELECT * INTO policy FROM pulse.flow_policies AS known WHERE known.topic = of_topic AND known.laned;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO pulse.lanes AS known (topic, lane, held, weight, max_running)
    VALUES (of_topic, of_lane, 0, new_weight, new_limit)
    ON CONFLICT (topic, lane) DO UPDATE SET weight = EXCLUDED.weight, max_running = EXCLUDED.max_running;
    PERFORM pulse.limits_of_lanes_changed(policy, of_lane);
    RETURN true;
END
$$;

-- Deletes lanes that have not been used for so long that nothing about them counts any more. Returns how many.
CREATE FUNCTION pulse.forget_lanes(most integer) RETURNS bigint LANGUAGE sql AS $$
    WITH idle AS MATERIALIZED (
        SELECT lane.ctid AS tid
        FROM pulse.lanes AS lane
        LEFT JOIN pulse.flow_policies AS policy ON policy.topic = lane.topic
        WHERE lane.held = 0 AND lane.weight = 1 AND lane.max_running IS NULL
          AND lane.used_at < now() - GREATEST(interval '1 hour', policy.lane_period * 1.2)
        LIMIT most
        FOR UPDATE OF lane SKIP LOCKED
    ),
    forgotten AS (
        DELETE FROM pulse.lanes AS lane USING idle WHERE lane.ctid = idle.tid RETURNING lane.topic
    )
    SELECT count(*) FROM forgotten
$$;
