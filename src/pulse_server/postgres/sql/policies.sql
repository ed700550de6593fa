-- Policies of topics: how long their finished jobs are kept. The statements of retention.sql read them for
-- themselves, so that a change counts from the next one on, in every server.

-- name: set_policy
-- Changes the entries whose flag is set, and leaves the others.
--   $1 topic   $2, $3 completed: whether it changes, and to what   $4, $5 canceled   $6, $7 dead-lettered   $8 by
INSERT INTO pulse.topic_policies AS policy (topic, completed_kept, canceled_kept, dead_lettered_kept, set_by)
VALUES ($1, $3::interval, $5::interval, $7::interval, $8)
ON CONFLICT (topic) DO UPDATE
SET completed_kept = CASE WHEN $2::bool THEN EXCLUDED.completed_kept ELSE policy.completed_kept END,
    canceled_kept = CASE WHEN $4::bool THEN EXCLUDED.canceled_kept ELSE policy.canceled_kept END,
    dead_lettered_kept = CASE WHEN $6::bool THEN EXCLUDED.dead_lettered_kept ELSE policy.dead_lettered_kept END,
    set_by = EXCLUDED.set_by,
    set_at = EXCLUDED.set_at
RETURNING topic, completed_kept, canceled_kept, dead_lettered_kept, set_by, set_at;

-- name: delete_empty_policy
-- A policy that says nothing.
DELETE FROM pulse.topic_policies
WHERE topic = $1 AND completed_kept IS NULL AND canceled_kept IS NULL AND dead_lettered_kept IS NULL;

-- name: list_policies
SELECT topic, completed_kept, canceled_kept, dead_lettered_kept, set_by, set_at
FROM pulse.topic_policies
WHERE topic > $1 AND ($3::text[] IS NULL OR topic = ANY($3::text[]))
ORDER BY topic
LIMIT $2;
