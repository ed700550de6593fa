-- The pause switches, the topics that have limits, the states of workers, and the secret of the queue. Claims read the
-- first two: a claim that starts after a pause was committed takes nothing, whatever its server remembers.

-- name: read_gate
SELECT paused, reason, paused_at, paused_by,
       (SELECT jsonb_agg(jsonb_build_array(topic, reason, paused_at, paused_by) ORDER BY topic)
        FROM pulse.barred_topics
        WHERE barred_topics.paused) AS topics,
       (SELECT jsonb_agg(jsonb_build_array(topic, pool) ORDER BY topic) FROM pulse.limit_policies) AS limited,
       -- claim_limited_v1 has the same rule.
       (SELECT jsonb_agg(jsonb_build_array(policy.topic, true) ORDER BY policy.topic)
        FROM pulse.limit_policies AS policy
        JOIN pulse.pools AS pool ON pool.name = policy.pool
        WHERE pool.starts IS NULL AND policy.lane_starts IS NULL AND NOT policy.ordered) AS ahead,
       (SELECT jsonb_agg(jsonb_build_array(worker_id, run_id, state, reason, set_at, set_by) ORDER BY worker_id, run_id)
        FROM pulse.worker_states) AS workers,
       (SELECT secret FROM pulse.cluster_secret) AS secret
FROM pulse.dispatch_control
WHERE id = 1;

-- name: pause_everything(reason, paused_by)
-- Pausing again keeps the time, and takes the new reason and its author.
UPDATE pulse.dispatch_control
SET paused = true, reason = :reason, paused_by = :paused_by, paused_at = COALESCE(paused_at, clock_timestamp())
WHERE id = 1;

-- name: resume_everything
UPDATE pulse.dispatch_control SET paused = false, reason = '', paused_by = '', paused_at = NULL WHERE id = 1;

-- name: pause_topic(topic, reason, paused_by)
INSERT INTO pulse.barred_topics (topic, reason, paused_by) VALUES (:topic, :reason, :paused_by)
ON CONFLICT (topic) DO UPDATE
SET paused = true,
    reason = EXCLUDED.reason,
    paused_by = EXCLUDED.paused_by,
    paused_at = CASE WHEN barred_topics.paused THEN barred_topics.paused_at ELSE EXCLUDED.paused_at END;

-- name: resume_topic(topic)
-- The row of a limited topic stays. `limited` is read behind the lock on the row: another session
-- may be changing it.
WITH barred AS MATERIALIZED (
    SELECT limited FROM pulse.barred_topics WHERE topic = :topic FOR UPDATE
),
resumed AS (
    UPDATE pulse.barred_topics SET paused = false, reason = '', paused_by = ''
    WHERE topic = :topic AND (SELECT barred.limited FROM barred)
)
DELETE FROM pulse.barred_topics WHERE topic = :topic AND NOT (SELECT barred.limited FROM barred);

-- name: set_worker_state(worker, run_ids, states, reason, set_by)
-- Sets the state of processes of a worker, each once. The same state again keeps its time, and takes
-- the new reason and its author.
INSERT INTO pulse.worker_states AS known (worker_id, run_id, state, reason, set_by)
SELECT :worker, given.run_id, given.state, :reason, :set_by
FROM unnest(:run_ids::text[], :states::text[]) AS given (run_id, state)
ORDER BY given.run_id
ON CONFLICT (worker_id, run_id) DO UPDATE
SET state = EXCLUDED.state,
    reason = EXCLUDED.reason,
    set_by = EXCLUDED.set_by,
    set_at = CASE WHEN known.state = EXCLUDED.state THEN known.set_at ELSE EXCLUDED.set_at END,
    missing_since = NULL;

-- name: resume_worker(worker)
DELETE FROM pulse.worker_states WHERE worker_id = :worker RETURNING run_id;

-- name: claim_limited(topics, most, slots, workers, confirms, lease, most_bytes, running, entered)
-- As claim_batch. :running is the number of slots that run their jobs at once. :entered is NULL, or empty
-- for a claim that waits for no pool.
SELECT * FROM pulse.claim_limited_v1(
    :topics::text[], :most, :slots::int[], :workers::text[], :confirms::bool[], :lease::interval, :most_bytes::bigint, :entered::text[], :running::int);
