-- Why jobs do not run: the facts that claims, promotions and the reaping of leases decide by. Nothing
-- here changes or locks a row. views/explanations.py makes sentences of them.

-- name: explain_jobs(ids, topic, most)
-- A row for each stored job, with the facts of its topic, lane, workflow and worker. With :topic, a
-- row for the topic's next job; without an id if the topic has no unfinished job.
-- :most bounds the number of jobs that are counted ahead of a job in its lane. A transaction that has
-- locked the row of a job is named once it is older than 100 ms; our own are shorter.
WITH next AS MATERIALIZED (
    SELECT COALESCE(
        (
            SELECT job.id FROM pulse.jobs AS job
            WHERE job.topic = :topic::text AND {is_claimable}
            ORDER BY {claim_order}
            LIMIT 1
        ),
        (
            SELECT job.id
            FROM (
                SELECT place.* FROM pulse.lane_line AS place WHERE place.topic = :topic::text
                ORDER BY place.id, place.place
                LIMIT 100
            ) AS place
            CROSS JOIN LATERAL unnest(place.lanes) WITH ORDINALITY AS turn (lane, number)
            CROSS JOIN LATERAL (
                SELECT job.id FROM pulse.jobs AS job
                WHERE job.topic = :topic::text AND job.lane = turn.lane AND {stands_in_lane} AND {may_start}
                ORDER BY {lane_order}
                LIMIT 1
            ) AS job
            ORDER BY place.id, place.place, turn.number
            LIMIT 1
        ),
        (SELECT job.id FROM pulse.jobs AS job WHERE job.topic = :topic::text AND {stands_in_lane} LIMIT 1),
        (
            SELECT job.id FROM pulse.jobs AS job
            WHERE job.topic = :topic::text AND {waits_in_turn}
            ORDER BY job.next_run_at
            LIMIT 1
        ),
        (SELECT job.id FROM pulse.jobs AS job WHERE job.topic = :topic::text AND job.held AND job.finished_at IS NULL LIMIT 1)
    ) AS id
    WHERE :topic::text IS NOT NULL
),
asked AS MATERIALIZED (
    SELECT
        job.id, job.topic, job.status, job.queued, {waits} AS waits, {is_ready} AS is_ready, job.held, job.attempts,
        job.max_attempts, job.next_run_at, job.start_by, job.started_at, job.lease_until, job.finished_at, job.locked_by,
        job.waits_for, job.last_error, COALESCE(job.lane, '') AS lane, job.tier, job.rank_at,
        CASE WHEN job.history -> -1 ->> 'outcome' = 'snoozed' THEN job.history -> -1 ->> 'error' END AS snoozed,
        CASE WHEN job.finished_at IS NULL THEN NULLIF(job.xmax::text, '0')::xid END AS locker
    FROM (SELECT unnest(:ids::uuid[]) AS id UNION SELECT next.id FROM next) AS wanted
    JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[wanted.id])
    UNION ALL
    SELECT
        done.id, done.topic, 'COMPLETED', false, false, false, NULL, done.attempts,
        done.max_attempts, done.next_run_at, NULL, done.started_at, NULL, done.finished_at, done.finished_by,
        NULL, done.last_error, COALESCE(done.lane, ''), NULL, NULL, NULL, NULL
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(ARRAY(
        SELECT wanted.id
        FROM unnest(:ids::uuid[]) AS wanted (id)
        WHERE NOT EXISTS (SELECT FROM pulse.jobs AS job WHERE job.id = wanted.id OFFSET 0)
    ))
),
topic AS MATERIALIZED (
    SELECT
        named.topic AS name, policy AS policy, pool.limit, pool.starts, pool.period,
        CASE WHEN pool.name <> named.topic THEN pool.name END AS pool,
        {runs_in_pool} AS running,
        CASE WHEN NOT policy.retired THEN GREATEST(pool.closed_until, policy.closed_until) END AS held_until,
        pool.operator_until, spent.started, {rate_is_free_at} AS rate_free_at,
        barred.paused_at, barred.paused_by, barred.reason
    FROM (
        SELECT asked.topic FROM asked WHERE asked.finished_at IS NULL
        UNION
        SELECT :topic::text WHERE :topic::text IS NOT NULL
    ) AS named
    LEFT JOIN pulse.barred_topics AS barred ON barred.topic = ANY(ARRAY[named.topic]) AND barred.paused
    LEFT JOIN pulse.limit_policies AS policy ON policy.topic = ANY(ARRAY[named.topic])
    LEFT JOIN pulse.pools AS pool ON pool.name = ANY(ARRAY[policy.pool])
    {spent_in_pool}
),
-- The counted runs, by topic and lane.
run AS MATERIALIZED (
    SELECT run.pool, run.topic, run.lane_held AS lane, count(*)::int AS jobs, (array_agg(run.id ORDER BY run.id))[1] AS first
    FROM pulse.limited_runs AS run
    WHERE EXISTS (SELECT FROM topic WHERE topic.running IS NOT NULL)
    GROUP BY run.pool, run.topic, run.lane_held
),
-- The free places of lanes, and the turns before their first one.
line AS MATERIALIZED (
    SELECT
        turn.topic, turn.lane, sum(turn.places)::int AS places, (min(turn.number) - 1)::int AS before,
        array_agg(turn.job_id) FILTER (WHERE turn.job_id IS NOT NULL) AS tried
    FROM (
        SELECT
            topic.name AS topic, lane.name AS lane, place.places, place.job_id,
            row_number() OVER (PARTITION BY topic.name ORDER BY place.id, place.place, lane.number, lane.name) AS number
        FROM topic
        CROSS JOIN LATERAL (
            (
                SELECT place.id, place.place, place.lanes, place.places, place.job_id
                FROM pulse.lane_line AS place
                WHERE (topic.policy).laned AND place.topic = topic.name
                ORDER BY place.id, place.place
                LIMIT 10000
            )
            UNION ALL
            -- The next claim puts these at the end of the line. A bulk submit names a lane in each of its notices.
            SELECT
                NULL, NULL,
                ARRAY(
                    SELECT lane.name
                    FROM (
                        SELECT notice.lanes
                        FROM pulse.limit_notices AS notice
                        WHERE notice.pool = (topic.policy).pool AND notice.topic = topic.name
                        LIMIT 2000
                    ) AS notice
                    CROSS JOIN LATERAL unnest(notice.lanes) AS lane (name)
                    GROUP BY lane.name
                    ORDER BY lane.name COLLATE "C"
                ),
                0, NULL
            WHERE (topic.policy).laned
        ) AS place
        CROSS JOIN LATERAL unnest(place.lanes) WITH ORDINALITY AS lane (name, number)
    ) AS turn
    GROUP BY turn.topic, turn.lane
)
SELECT
    clock_timestamp() AS now, asked.id, COALESCE(asked.topic, topic.name) AS topic, asked.status, asked.queued, asked.waits,
    asked.is_ready, asked.held, asked.attempts, asked.max_attempts, asked.next_run_at, asked.start_by, asked.started_at,
    asked.lease_until, asked.finished_at, asked.locked_by, asked.waits_for, asked.last_error, asked.snoozed, asked.lane,
    NOT {dispatch_is_on} AS all_paused, control.paused_at AS all_paused_at, control.paused_by AS all_paused_by,
    control.reason AS all_reason,
    topic.paused_at, topic.paused_by, topic.reason,
    topic.pool, topic.limit, topic.running, topic.starts, topic.period, topic.started, topic.rate_free_at,
    topic.held_until, topic.operator_until >= topic.held_until AS held_by_operator,
    CASE
        WHEN topic.pool IS NULL THEN NULL
        WHEN topic.running >= topic.limit THEN ARRAY(
            SELECT format('%s of %s', sum(run.jobs), run.topic)
            FROM run
            WHERE run.pool = topic.pool
            GROUP BY run.topic
            ORDER BY sum(run.jobs) DESC, run.topic
            LIMIT 4
        )
        WHEN topic.rate_free_at IS NOT NULL THEN ARRAY(
            SELECT format('%s of %s', member.started, member.topic)
            FROM (
                SELECT member.topic, pulse.slices_sum_v1(pulse.slices_at_v1(
                    member.slices, member.slice, pulse.slice_of_v1(clock_timestamp(), topic.period, member.slice))) AS started
                FROM pulse.limit_policies AS member
                WHERE member.pool = topic.pool AND member.slices IS NOT NULL
                OFFSET 0
            ) AS member
            WHERE member.started > 0
            ORDER BY member.started DESC, member.topic
            LIMIT 4
        )
    END AS pool_use,
    COALESCE((topic.policy).laned, false) AS laned, lane_facts.*, following.first_in_order,
    spared.until AS spared_until, parents.*, holder.*
FROM asked
FULL JOIN topic ON topic.name = asked.topic
CROSS JOIN (SELECT * FROM pulse.dispatch_control AS control WHERE control.id = 1) AS control
-- Conditions are inside the subqueries: they do not run for the other jobs. The lane of a ready job:
-- its free places are those in the line, those whose wait is
-- over, and those that are not in use, without the places above its limit: as share_room counts.
LEFT JOIN LATERAL (
    SELECT
        line.before AS turns_before,
        CASE WHEN asked.lane <> '' THEN pulse.places_of_v1(topic.policy, known.limit) END AS lane_limit,
        COALESCE(line.places, 0) + CASE WHEN known.next_at <= clock_timestamp() THEN known.waiting ELSE 0 END
            + CASE
                WHEN asked.lane = '' OR (topic.policy).per_lane IS NULL THEN 1
                ELSE pulse.places_of_v1(topic.policy, known.limit)
            END - COALESCE(known.held, 0) AS lane_free,
        COALESCE((SELECT run.jobs FROM run WHERE run.topic = asked.topic AND run.lane = asked.lane LIMIT 1), 0) AS lane_running,
        (SELECT run.first FROM run WHERE run.topic = asked.topic AND run.lane = asked.lane LIMIT 1) AS lane_runs,
        CASE WHEN asked.lane <> '' THEN (topic.policy).lane_starts END AS lane_starts,
        (topic.policy).lane_period AS lane_period, pulse.slices_sum_v1(late.slices) AS lane_started,
        pulse.slices_free_at_v1(late.slices, late.slice, (topic.policy).lane_period) AS lane_rate_free_at,
        (topic.policy).ordered AND asked.lane <> '' AS ordered,
        (
            SELECT count(*)::int
            FROM (
                SELECT job.tier, job.rank_at, job.id
                FROM pulse.jobs AS job
                WHERE job.topic = asked.topic AND job.lane = asked.lane AND {stands_in_lane} AND {may_start}
                ORDER BY {lane_order}
                LIMIT :most::int + 1
            ) AS job
            WHERE job.tier > asked.tier OR job.tier = asked.tier AND (job.rank_at, job.id) < (asked.rank_at, asked.id)
        ) AS ahead_in_lane
    FROM (SELECT WHERE (topic.policy).laned AND asked.is_ready) AS always
    LEFT JOIN pulse.lanes AS known ON known.topic = ANY(ARRAY[asked.topic]) AND known.lane = ANY(ARRAY[asked.lane])
    LEFT JOIN line ON line.topic = asked.topic AND line.lane = asked.lane
    LEFT JOIN LATERAL (
        SELECT present.slice, pulse.slices_at_v1(known.slices, known.slice, present.slice) AS slices
        FROM (SELECT pulse.slice_of_v1(clock_timestamp(), (topic.policy).lane_period, known.slice) AS slice OFFSET 0) AS present
        WHERE (topic.policy).lane_starts IS NOT NULL AND known.slice IS NOT NULL
        OFFSET 0
    ) AS late ON true
) AS lane_facts ON true
LEFT JOIN LATERAL (
    SELECT COALESCE(lane_facts.lane_runs, next.id) AS first_in_order
    FROM pulse.next_in_order_v1(topic.policy, asked.lane, COALESCE(
        (SELECT known.waits_for FROM pulse.lanes AS known WHERE known.topic = asked.topic AND known.lane = asked.lane), '{}'
    ) || COALESCE((SELECT line.tried FROM line WHERE line.topic = asked.topic AND line.lane = asked.lane), '{}')) AS next
    WHERE lane_facts.ordered
    LIMIT 1
) AS following ON true
-- A spared worker's jobs are reaped later: as in reap_expired.
LEFT JOIN LATERAL (
    SELECT max(moment) AS until
    FROM (
        SELECT spared.spared_until AS moment FROM pulse.spared_workers AS spared WHERE spared.worker_id = asked.locked_by
        UNION ALL
        SELECT server.workers_spared_until
        FROM pulse.servers AS server
        WHERE server.silent_from < now() AND server.workers @> jsonb_build_array(jsonb_build_object('worker_id', asked.locked_by))
    ) AS spared
    WHERE asked.lease_until IS NOT NULL
) AS spared ON true
-- The names of parents only for a single job.
LEFT JOIN LATERAL (
    SELECT
        child.unended AS parents_left,
        ARRAY(
            SELECT json_build_array(parent.job_id, parent.name, COALESCE(job.status, 'COMPLETED'))::text
            FROM pulse.workflow_edges AS edge
            JOIN pulse.workflow_jobs AS parent ON parent.job_id = ANY(ARRAY[edge.parent]) AND parent.outcome IS NULL
            LEFT JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[parent.job_id])
            WHERE edge.child = child.job_id AND COALESCE(cardinality(:ids::uuid[]), 0) <= 1
            ORDER BY edge.number
            LIMIT 4
        ) AS parents
    FROM pulse.workflow_jobs AS child
    WHERE child.job_id = ANY(ARRAY[asked.id]) AND asked.held AND asked.finished_at IS NULL
) AS parents ON true
-- The transaction that has locked or changed the row. The locks are read only for a row that has, or had, one.
-- The application and the time of other roles' sessions are visible only to a member of pg_read_all_stats.
-- Of several that share a lock none is found. A lock of a savepoint that was released is that of the only
-- transaction that has changed jobs, if there is one.
LEFT JOIN LATERAL (
    SELECT
        true AS is_row_locked, lock.pid AS holder_pid, COALESCE(session.usename, prepared.owner)::text AS holder_user,
        session.application_name AS holder_application, COALESCE(session.xact_start, prepared.prepared) AS holder_since,
        prepared.gid AS holder_prepared
    FROM (
        SELECT own.pid, own.transactionid
        FROM pg_locks AS own
        WHERE asked.locker IS NOT NULL AND own.locktype = 'transactionid' AND own.granted AND own.mode = 'ExclusiveLock'
          AND own.transactionid = asked.locker
        UNION ALL
        SELECT min(own.pid), NULL
        FROM (SELECT asked.locker::text AS xid) AS locker
        CROSS JOIN pg_locks AS own
        LEFT JOIN pg_stat_activity AS session ON session.pid = own.pid
        WHERE locker.xid IS NOT NULL AND own.relation = 'pulse.jobs'::regclass AND own.granted
          AND own.mode IN ('RowShareLock', 'RowExclusiveLock')
          AND own.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND COALESCE(session.xact_start, '-infinity') < clock_timestamp() - interval '100 ms'
          AND NOT EXISTS (SELECT FROM pg_locks AS other WHERE other.transactionid = asked.locker OFFSET 0)
          AND {locker_is_open}
        HAVING count(DISTINCT COALESCE(own.pid, 0)) = 1 AND min(own.pid) IS NOT NULL
    ) AS lock
    LEFT JOIN pg_stat_activity AS session ON session.pid = lock.pid
    LEFT JOIN pg_prepared_xacts AS prepared ON lock.pid IS NULL AND prepared.transaction = lock.transactionid
    WHERE COALESCE(session.xact_start, prepared.prepared, '-infinity') < clock_timestamp() - interval '100 ms'
    LIMIT 1
) AS holder ON true
-- A topic is explained by the row of its next job; other topics come only with jobs.
WHERE asked.id IS NOT NULL OR :topic::text IS NOT NULL;

-- name: jobs_ahead(topics, of_each, most)
-- The first jobs that the workers of these topics would claim, in the order of claims: as
-- claim_across_topics. A topic that has :of_each jobs may have more after its last one. A single topic
-- may be limited, and has no lanes then.
SELECT job.id, job.topic
FROM unnest(:topics::text[]) AS asked (topic)
CROSS JOIN LATERAL (
    SELECT job.id, job.topic, job.priority, job.submitted_at
    FROM pulse.jobs AS job
    WHERE job.topic = asked.topic AND {is_claimable}
    ORDER BY {claim_order}
    LIMIT :of_each::int
) AS job
WHERE cardinality(:topics::text[]) = 1 OR {asked_topic_is_open}
ORDER BY {claim_order}
LIMIT :most::int;

-- name: held_by_topic
-- How many jobs of each topic each worker holds.
WITH {running_jobs}
SELECT running.locked_by, running.topic, count(*)::int AS jobs
FROM running
GROUP BY running.locked_by, running.topic;
