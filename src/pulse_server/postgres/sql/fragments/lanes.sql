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
