-- Fragments of lanes, most of them in the functions of limits. jobs.sql has the others, and what a fragment is. ADR-0064

-- name: stands_in_lane
-- The job waits in its lane. In the form of the index jobs_lane.
job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL

-- name: stands_in_no_lane
-- In the form of the index jobs_claim. Of a topic with lanes: the job is yet to enter its lane.
job.queued AND job.tier IS NULL AND job.locked_by IS NULL

-- name: lane_order
-- The order in a lane, and that of the index jobs_lane.
job.tier DESC, job.rank_at, job.id

-- name: tier_by_policy
CASE WHEN policy.aging IS NULL THEN job.priority ELSE 0 END

-- name: rank_by_policy
pulse.rank_of_v1(job.submitted_at, job.priority, policy.aging)
