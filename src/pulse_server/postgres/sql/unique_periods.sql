-- The periods of throttled keys. insert_rich_jobs takes them. ADR-0066

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
