-- What transactions of applications have stored or completed. ADR-0075

-- name: take_arrivals(most)
-- Some rows that are committed, each for one server. A transaction may commit long after it wrote
-- its row: there is no order.
WITH seen AS MATERIALIZED (
    SELECT arrival.ctid AS tid FROM pulse.arrivals AS arrival LIMIT :most FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse.arrivals AS arrival
WHERE arrival.ctid = ANY(ARRAY(SELECT seen.tid FROM seen))
RETURNING arrival.topic, arrival.jobs, arrival.ids, arrival.priority,
    date_part('epoch', clock_timestamp() - arrival.oldest) AS age_seconds,
    arrival.worker_id, arrival.attempt, arrival.run, arrival.ran_seconds, arrival.replaced_by;

-- name: record_defaults(max_attempts, max_result_bytes, max_workflow_jobs)
-- The settings of this server, for the functions of the interface.
UPDATE pulse.dispatch_control
SET max_attempts = :max_attempts, max_result_bytes = :max_result_bytes, max_workflow_jobs = :max_workflow_jobs
WHERE id = 1
  AND (max_attempts, max_result_bytes, max_workflow_jobs) <> (:max_attempts, :max_result_bytes, :max_workflow_jobs);
