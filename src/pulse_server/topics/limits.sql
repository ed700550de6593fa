-- Limits. They are in functions/, because a claim needs several snapshots. No other statement of
-- this file changes a job. ADR-0064

-- name: limit_topic(topic, pool, laned, per_lane, lane_starts, lane_period, ordered, aging, retired, limit, starts, period, mark)
-- :laned: its jobs stand in lanes. :per_lane, :lane_starts and :lane_period are for each lane;
-- :limit, :starts and :period for the topic or its pool. :retired: the limits were removed. :mark: of
-- mark_topic, for a first limit.
SELECT pulse.limit_topic_v1(
    jsonb_populate_record(NULL::pulse.limit_policies, jsonb_build_object(
        'topic', :topic::text, 'pool', :pool::text, 'laned', :laned::bool, 'per_lane', :per_lane::int, 'shrinks', false,
        'lane_starts', :lane_starts::int, 'lane_period', :lane_period::interval, 'ordered', :ordered::bool, 'aging', :aging::interval, 'retired', :retired::bool)),
    jsonb_populate_record(NULL::pulse.pools, jsonb_build_object(
        'name', :pool::text, 'limit', :limit::int, 'starts', :starts::int, 'period', :period::interval)),
    :mark::xid
) AS met;

-- name: mark_topic(topic)
-- From its commit on, plain claims and hand-overs leave the topic out. No row: it is marked already.
INSERT INTO pulse.barred_topics AS known (topic, paused, limited) VALUES (:topic, false, true)
ON CONFLICT (topic) DO UPDATE SET limited = true WHERE NOT known.limited
RETURNING pg_current_xact_id()::xid AS mark;

-- name: read_mark(topic)
SELECT barred.xmin AS mark FROM pulse.barred_topics AS barred WHERE barred.topic = :topic AND barred.limited;

-- name: unmark_topic(topic, mark)
SELECT pulse.unmark_topic_v1(:topic, :mark::xid) AS is_plain;

-- name: marked_topics(wanted)
-- Topics with a mark and no policy, except :wanted. A server may have been killed after the mark.
SELECT barred.topic
FROM pulse.barred_topics AS barred
WHERE barred.limited AND NOT (barred.topic = ANY(:wanted::text[]))
  AND NOT EXISTS (SELECT FROM pulse.limit_policies AS known WHERE known.topic = barred.topic);

-- name: plain_starts(among)
-- Transactions that may start jobs of plain topics: claims and hand-overs lock the table of lease checks
-- before they take their snapshot, and keep that lock to their end. One that begins after a mark was
-- committed sees it. :among: only these of an earlier look.
SELECT DISTINCT lock.virtualtransaction AS number
FROM pg_locks AS lock
WHERE lock.relation = 'pulse.lease_checks'::regclass AND lock.mode = 'RowExclusiveLock' AND lock.granted
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (:among::text[] IS NULL OR lock.virtualtransaction = ANY(:among::text[]));

-- name: open_transactions(topic, pools, numbers)
-- The transactions that have a running job of the topic or one of the pools locked, and those with
-- :numbers. A prepared one belongs to no session. A lock that was taken in a savepoint has the number of
-- that, which pg_locks lists no longer once it was released. Then these are the transactions that have
-- ended runs: it is one of them.
WITH owner AS MATERIALIZED (
    SELECT lock.pid, lock.virtualtransaction AS number, CASE WHEN lock.locktype = 'transactionid' THEN lock.transactionid END AS xid
    FROM pg_locks AS lock
    WHERE lock.granted AND lock.mode = 'ExclusiveLock' AND lock.locktype IN ('transactionid', 'virtualxid')
      AND lock.pid IS DISTINCT FROM pg_backend_pid()
),
locker AS MATERIALIZED (
    SELECT job.xmax::text AS xid FROM pulse.jobs AS job WHERE job.topic = :topic AND {is_checked_run}
    UNION
    SELECT pool.xmax::text FROM pulse.pools AS pool WHERE pool.name = ANY(:pools::text[])
),
released AS MATERIALIZED (
    SELECT
    FROM locker
    WHERE locker.xid <> '0' AND locker.xid NOT IN (SELECT owner.xid::text FROM owner WHERE owner.xid IS NOT NULL)
      AND {locker_is_open}
)
SELECT DISTINCT found.pid, session.application_name AS application, session.usename::text AS user, prepared.gid, found.number
FROM (
    SELECT owner.pid, owner.xid, owner.number
    FROM owner
    WHERE owner.xid::text IN (SELECT locker.xid FROM locker) OR owner.number = ANY(:numbers::text[])
    UNION ALL
    SELECT owner.pid, owner.xid, owner.number
    FROM owner
    WHERE owner.xid IS NOT NULL AND EXISTS (SELECT FROM released)
      AND owner.number IN (
          SELECT lock.virtualtransaction
          FROM pg_locks AS lock
          WHERE lock.relation = 'pulse.completed_jobs'::regclass AND lock.mode = 'RowExclusiveLock' AND lock.granted
            AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      )
) AS found
LEFT JOIN pg_stat_activity AS session ON session.pid = found.pid
LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction = found.xid
WHERE found.pid IS NOT NULL OR prepared.gid IS NOT NULL
ORDER BY found.pid, prepared.gid
LIMIT 8;

-- name: unsettled_topics
-- Whose limits were removed, or which may still get jobs by an old policy.
SELECT topic FROM pulse.limit_policies WHERE retired OR older IS NOT NULL ORDER BY topic;

-- name: unlimit_topic(topic)
SELECT pulse.unlimit_topic_v1(:topic) AS is_plain;

-- name: hold(topic, how_long, by_operator)
-- The longest of several holds counts. A hold of length zero ends them, but a worker's ends neither
-- an operator's hold nor one that the topic brought from another pool. Returns the time when
-- the topic's hold ends.
WITH ended AS (
    UPDATE pulse.limit_policies AS policy
    SET closed_until = NULL
    WHERE policy.topic = :topic AND policy.closed_until IS NOT NULL AND :how_long::interval <= interval '0' AND :by_operator::bool
)
UPDATE pulse.pools AS pool
SET closed_until = CASE
        WHEN :how_long::interval > interval '0' THEN GREATEST(pool.closed_until, clock_timestamp() + :how_long::interval)
        WHEN NOT :by_operator::bool THEN pool.operator_until
    END,
    operator_until = CASE
        WHEN NOT :by_operator::bool THEN pool.operator_until
        WHEN :how_long::interval > interval '0' THEN GREATEST(pool.operator_until, clock_timestamp() + :how_long::interval)
    END
FROM pulse.limit_policies AS policy
WHERE policy.topic = :topic AND pool.name = ANY(ARRAY[policy.pool])
RETURNING (
    SELECT max(moment)
    FROM unnest(ARRAY[
        pool.closed_until, CASE WHEN :how_long::interval > interval '0' OR NOT :by_operator::bool THEN policy.closed_until END
    ]) AS moment
    WHERE moment > clock_timestamp()
) AS closed_until;

-- name: set_lane(topic, lane, weight, limit)
SELECT pulse.set_lane_v1(:topic, :lane, :weight::int, :limit::int) AS has_lanes;

-- name: list_limits(after_topic, most, topics)
-- Lanes are full if none has a place in the line, none has new work, and what uses their places is
-- known: running jobs, or a time that has not come yet.
SELECT policy.topic, pool.name, pool.limit, pool.starts, pool.period, policy.laned, policy.per_lane,
    policy.lane_starts, policy.lane_period, policy.ordered, policy.aging,
    {runs_in_pool} AS running,
    CASE WHEN GREATEST(pool.closed_until, policy.closed_until) > clock_timestamp()
        THEN GREATEST(pool.closed_until, policy.closed_until)
    END AS closed_until,
    COALESCE(spent.started, 0) AS started,
    {rate_is_free_at} AS next_start_at,
    policy.laned
        AND NOT EXISTS (SELECT FROM pulse.lane_line AS line WHERE line.topic = policy.topic OFFSET 0)
        AND NOT EXISTS (
            SELECT FROM pulse.limit_notices AS notice
            WHERE notice.pool = pool.name AND notice.topic = policy.topic AND notice.lanes IS NOT NULL
            OFFSET 0
        )
        AND (
            pool.held > 0
            OR EXISTS (
                SELECT FROM pulse.lanes AS lane WHERE lane.topic = policy.topic AND lane.next_at > clock_timestamp()
            )
        ) AS lanes_are_full
FROM pulse.limit_policies AS policy
JOIN pulse.pools AS pool ON pool.name = ANY(ARRAY[policy.pool])
{spent_in_pool}
WHERE policy.topic > :after_topic AND (:topics::text[] IS NULL OR policy.topic = ANY(:topics::text[])) AND NOT policy.retired
ORDER BY policy.topic
LIMIT :most;

-- name: list_lanes(topic, most, busiest_first)
-- Among the 10,000 last used lanes: the longest-waiting ones, or by the number of running jobs.
WITH recent AS MATERIALIZED (
    SELECT lane.*
    FROM pulse.lanes AS lane
    WHERE lane.topic = :topic
    ORDER BY lane.used_at DESC
    LIMIT 10000
),
running AS MATERIALIZED (
    SELECT run.lane, count(*)::int AS jobs FROM pulse.limited_runs AS run WHERE run.topic = :topic GROUP BY run.lane
)
SELECT lane.lane, lane.weight, lane.limit, lane.next_at, head.submitted_at AS oldest, COALESCE(running.jobs, 0) AS running,
    (
        SELECT count(*)
        FROM (
            SELECT FROM pulse.jobs AS job
            WHERE job.topic = :topic AND job.lane = lane.lane AND {stands_in_lane}
            LIMIT 1000
        ) AS job
    ) AS waiting
FROM recent AS lane
LEFT JOIN running ON running.lane = lane.lane
LEFT JOIN LATERAL (
    SELECT job.submitted_at
    FROM pulse.jobs AS job
    WHERE job.topic = :topic AND job.lane = lane.lane AND {stands_in_lane}
    ORDER BY {lane_order}
    LIMIT 1
) AS head ON true
ORDER BY CASE WHEN :busiest_first::bool THEN -COALESCE(running.jobs, 0) END, head.submitted_at, lane.lane
LIMIT :most;

-- name: forget_lanes(most)
SELECT pulse.forget_lanes_v1(:most::int) AS forgotten;

-- name: sweep
SELECT pools, lanes FROM pulse.sweep_limits_v1();
