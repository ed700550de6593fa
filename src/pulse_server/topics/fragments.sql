-- Fragments of lanes, most of them for the functions of limits. jobs.sql explains fragments.
-- ADR-0064

-- name: stands_in_lane
-- The job waits in its lane. In the form of the index jobs_lane.
job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL

-- name: stands_in_no_lane
-- In the form of the index jobs_claim. In a topic with lanes, such jobs have not entered their
-- lane.
job.queued AND job.tier IS NULL AND job.locked_by IS NULL

-- name: lane_order
-- The order in a lane, which is also the order of the index jobs_lane.
job.tier DESC, job.rank_at, job.id

-- name: tier_by_policy
CASE WHEN policy.aging IS NULL THEN job.priority ELSE 0 END

-- name: rank_by_policy
pulse.rank_of_v1(job.submitted_at, job.priority, policy.aging)

-- name: runs_in_pool
-- The runs that a pool counts, once a claim has taken the notices.
pool.held - COALESCE((
        SELECT sum(notice.ended) FROM pulse.limit_notices AS notice WHERE notice.pool = pool.name
    ), 0)::int

-- name: spent_in_pool
-- The starts that the rate of `pool` counts now.
LEFT JOIN LATERAL (
    SELECT late.slice, late.slices, pulse.slices_sum_v1(late.slices) AS started
    FROM (
        SELECT present.slice, pulse.slices_at_v1(pool.slices, pool.slice, present.slice) AS slices
        FROM (SELECT pulse.slice_of_v1(clock_timestamp(), pool.period, pool.slice) AS slice OFFSET 0) AS present
        WHERE pool.starts IS NOT NULL
        OFFSET 0
    ) AS late
) AS spent ON true

-- name: rate_is_free_at
-- When the next job may start by the rate. NULL: now.
CASE WHEN pool.starts <= spent.started
        THEN pulse.slices_free_at_v1(spent.slices, spent.slice, pool.period)
    END

-- name: is_checked_run
-- A running job, found by the lease checks. ADR-0056
job.locked_by IS NOT NULL
      AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check))

-- name: ranked_anew
-- All jobs in lanes may have an old rank.
ranked_lane = '', ranked_tier = 2147483647, ranked_at = '-infinity', ranked_id = '00000000-0000-0000-0000-000000000000'
