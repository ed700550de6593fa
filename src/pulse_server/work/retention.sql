-- The periods of throttled keys. insert_rich_jobs takes them. ADR-0066
--
-- States of workers whose processes have ended. dispatch.sql sets and reads the states.

-- name: forget_periods(most)
-- Deletes a batch of periods that are over. A key that is being taken again is locked, and stays.
WITH over AS MATERIALIZED (
    SELECT known.topic, known.key
    FROM pulse.unique_periods AS known
    WHERE known.until < now()
    ORDER BY known.until
    LIMIT :most
    FOR UPDATE SKIP LOCKED
),
forgotten AS (
    DELETE FROM pulse.unique_periods AS known
    USING over
    WHERE known.topic = ANY(ARRAY[over.topic]) AND known.key = ANY(ARRAY[over.key])
    RETURNING known.key
)
SELECT count(*) AS forgotten FROM forgotten;

-- name: forget_worker_states
-- Records which processes with a state are connected, and deletes the states of those that have been
-- away for $1. The last record of a server counts for as long as its row is kept. States that another
-- session has locked stay for the next round.
WITH connected AS MATERIALIZED (
    SELECT worker ->> 'worker_id' AS worker_id, COALESCE(worker ->> 'run_id', '') AS run_id
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers) AS worker
    WHERE EXISTS (SELECT FROM pulse.worker_states)
),
found AS MATERIALIZED (
    SELECT
        known.worker_id, known.run_id, known.missing_since,
        (known.worker_id, known.run_id) IN (SELECT worker_id, run_id FROM connected) AS is_connected
    FROM pulse.worker_states AS known
    ORDER BY known.worker_id, known.run_id
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE pulse.worker_states AS known
    SET missing_since = CASE WHEN NOT found.is_connected THEN clock_timestamp() END
    FROM found
    WHERE known.worker_id = found.worker_id AND known.run_id = found.run_id
      AND (found.missing_since IS NULL) <> found.is_connected
)
DELETE FROM pulse.worker_states AS known
USING found
WHERE known.worker_id = found.worker_id AND known.run_id = found.run_id
  AND NOT found.is_connected AND found.missing_since < clock_timestamp() - $1::interval;
