-- The secret of the queue, for the line between servers. read_gate reads it for the workers. ADR-0084

-- name: read_secret
SELECT secret FROM pulse.cluster_secret WHERE id = 1;
