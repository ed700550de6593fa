-- name: connected_workers
-- The connected workers. Those that take the same topics at a server are in one group, whose topics are listed once.
-- Nothing is read without a declaration.
worker AS MATERIALIZED (
    SELECT
        entry.worker ->> 'worker_id' AS worker_id,
        server.id || ' ' || COALESCE((entry.worker ->> 'same_as')::bigint, entry.place - 1) AS group_name,
        entry.worker -> 'topics' AS topics,
        min((entry.worker ->> 'connected_at')::timestamptz) OVER (
            PARTITION BY server.id, COALESCE((entry.worker ->> 'same_as')::bigint, entry.place - 1)) AS since,
        -- The row of a server with very many topics does not have all of them.
        (entry.worker ->> 'topics_left_out')::int > 0 AS has_more
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers) WITH ORDINALITY AS entry (worker, place)
    WHERE server.seen_at >= clock_timestamp() - :silent_for::interval
      AND EXISTS (SELECT FROM pulse.topic_settings AS said WHERE said.owner <> '' OFFSET 0)
),
serving AS MATERIALIZED (
    SELECT worker.group_name, taken.topic, worker.since
    FROM worker
    CROSS JOIN LATERAL jsonb_array_elements_text(worker.topics) AS taken (topic)
)

-- name: worker_is_connected
-- Whether the worker that owns the row is connected and takes the topic. Looked up in an object and in a hashed
-- subplan: 1,000 workers with declarations of their own would otherwise be a million comparisons.
COALESCE(
            (((SELECT jsonb_object_agg(worker.worker_id, worker.group_name) FROM worker) ->> own.owner), own.topic)
                IN (SELECT serving.group_name, serving.topic FROM serving)
            OR ((SELECT jsonb_object_agg(worker.worker_id, worker.group_name) FROM worker) ->> own.owner)
                IN (SELECT worker.group_name FROM worker WHERE worker.has_more), false)
