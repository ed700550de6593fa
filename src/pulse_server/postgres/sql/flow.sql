-- Flow control. It is in functions/, because a claim needs several snapshots. No other statement of
-- this file changes a job. ADR-0064

-- name: claim_limited
--   $1 topics   $2-$7 as claim_batch   $8 slots that run at once
SELECT * FROM pulse.claim_limited_v1(
    $1::text[], $2, $3::int[], $4::text[], $5::bool[], $6::interval, $7::bigint, NULL, $8::int);

-- name: limit_topic
--   $1 topic   $2 turnstile   $3 whether its jobs stand in lanes   $4 per_lane   $5, $6 lane rate   $7 ordered   $8 aging
--   $9 whether it is retired   $10 limit   $11, $12 rate
SELECT pulse.limit_topic_v1(
    jsonb_populate_record(NULL::pulse.flow_policies, jsonb_build_object(
        'topic', $1::text, 'turnstile', $2::text, 'laned', $3::bool, 'per_lane', $4::int, 'shrinks', false,
        'lane_starts', $5::int, 'lane_period', $6::interval, 'ordered', $7::bool, 'aging', $8::interval, 'retired', $9::bool)),
    jsonb_populate_record(NULL::pulse.turnstiles, jsonb_build_object(
        'name', $2::text, 'max_running', $10::int, 'starts', $11::int, 'period', $12::interval))
);

-- name: vacuums_of_jobs
-- Sessions that block the table lock of a change of limits, as a vacuum does.
SELECT pid
FROM pg_locks
WHERE relation = 'pulse.jobs'::regclass AND mode = 'ShareUpdateExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: retired_policies
SELECT topic FROM pulse.flow_policies WHERE retired ORDER BY topic;

-- name: unlimit_topic
SELECT pulse.unlimit_topic_v1($1) AS is_plain;

-- name: hold
-- The longest of several holds counts. A hold of length zero ends them, but a worker's ends neither
-- an operator's hold nor one that the topic brought from another turnstile. Returns the time when
-- the topic's hold ends.
--   $1 topic   $2 how long   $3 whether an operator holds it
WITH ended AS (
    UPDATE pulse.flow_policies AS policy
    SET closed_until = NULL
    WHERE policy.topic = $1 AND policy.closed_until IS NOT NULL AND $2::interval <= interval '0' AND $3::bool
)
UPDATE pulse.turnstiles AS turnstile
SET closed_until = CASE
        WHEN $2::interval > interval '0' THEN GREATEST(turnstile.closed_until, clock_timestamp() + $2::interval)
        WHEN NOT $3::bool THEN turnstile.operator_until
    END,
    operator_until = CASE
        WHEN NOT $3::bool THEN turnstile.operator_until
        WHEN $2::interval > interval '0' THEN GREATEST(turnstile.operator_until, clock_timestamp() + $2::interval)
    END
FROM pulse.flow_policies AS policy
WHERE policy.topic = $1 AND turnstile.name = policy.turnstile
RETURNING (
    SELECT max(moment)
    FROM unnest(ARRAY[
        turnstile.closed_until, CASE WHEN $2::interval > interval '0' OR NOT $3::bool THEN policy.closed_until END
    ]) AS moment
    WHERE moment > clock_timestamp()
) AS closed_until;

-- name: set_lane
SELECT pulse.set_lane_v1($1, $2, $3::int, $4::int) AS has_lanes;

-- name: list_limits
SELECT policy.topic, turnstile.name, turnstile.max_running, turnstile.starts, turnstile.period, policy.laned, policy.per_lane,
    policy.lane_starts, policy.lane_period, policy.ordered, policy.aging,
    turnstile.held - COALESCE((
        SELECT sum(notice.ended) FROM pulse.flow_notices AS notice WHERE notice.turnstile = turnstile.name
    ), 0)::int AS running,
    CASE WHEN GREATEST(turnstile.closed_until, policy.closed_until) > clock_timestamp()
        THEN GREATEST(turnstile.closed_until, policy.closed_until)
    END AS closed_until,
    COALESCE(spent.started, 0) AS started,
    CASE WHEN turnstile.starts <= spent.started
        THEN pulse.slices_free_at_v1(spent.slices, spent.slice, turnstile.period)
    END AS next_start_at
FROM pulse.flow_policies AS policy
JOIN pulse.turnstiles AS turnstile ON turnstile.name = policy.turnstile
LEFT JOIN LATERAL (
    SELECT late.slice, late.slices, pulse.slices_sum_v1(late.slices) AS started
    FROM (
        SELECT present.slice, pulse.slices_at_v1(turnstile.slices, turnstile.slice, present.slice) AS slices
        FROM (SELECT pulse.slice_of_v1(clock_timestamp(), turnstile.period, turnstile.slice) AS slice OFFSET 0) AS present
        OFFSET 0
    ) AS late
) AS spent ON turnstile.starts IS NOT NULL
WHERE policy.topic > $1 AND ($3::text[] IS NULL OR policy.topic = ANY($3::text[])) AND NOT policy.retired
ORDER BY policy.topic
LIMIT $2;

-- name: list_lanes
-- Among the 10,000 last used lanes: the longest-waiting ones, or by the number of running jobs.
WITH recent AS MATERIALIZED (
    SELECT lane.*
    FROM pulse.lanes AS lane
    WHERE lane.topic = $1
    ORDER BY lane.used_at DESC
    LIMIT 10000
),
running AS MATERIALIZED (
    SELECT run.lane, count(*)::int AS jobs FROM pulse.limited_runs AS run WHERE run.topic = $1 GROUP BY run.lane
)
SELECT lane.lane, lane.weight, lane.max_running, lane.next_at, head.submitted_at AS oldest, COALESCE(running.jobs, 0) AS running,
    (
        SELECT count(*)
        FROM (
            SELECT FROM pulse.jobs AS job
            WHERE job.topic = $1 AND job.lane = lane.lane AND {stands_in_lane}
            LIMIT 1000
        ) AS job
    ) AS waiting
FROM recent AS lane
LEFT JOIN running ON running.lane = lane.lane
LEFT JOIN LATERAL (
    SELECT job.submitted_at
    FROM pulse.jobs AS job
    WHERE job.topic = $1 AND job.lane = lane.lane AND {stands_in_lane}
    ORDER BY {lane_order}
    LIMIT 1
) AS head ON true
ORDER BY CASE WHEN $3::bool THEN -COALESCE(running.jobs, 0) END, head.submitted_at, lane.lane
LIMIT $2;

-- name: forget_lanes
SELECT pulse.forget_lanes_v1($1::int) AS forgotten;

-- name: sweep
SELECT turnstiles, lanes FROM pulse.sweep_flow_v1();
