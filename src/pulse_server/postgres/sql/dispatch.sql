-- The pause switches, and the topics that have a flow policy. Claims read them too: a claim that
-- starts after a pause was committed takes nothing, whatever its server remembers.

-- name: read_gate
SELECT paused, reason, paused_at, paused_by,
       (SELECT jsonb_agg(jsonb_build_array(topic, reason, paused_at, paused_by) ORDER BY topic)
        FROM pulse.barred_topics
        WHERE barred_topics.paused) AS topics,
       (SELECT jsonb_agg(jsonb_build_array(topic, turnstile) ORDER BY topic) FROM pulse.flow_policies) AS limited,
       -- claim_limited_v1 has the same rule.
       (SELECT jsonb_agg(jsonb_build_array(policy.topic, true) ORDER BY policy.topic)
        FROM pulse.flow_policies AS policy
        JOIN pulse.turnstiles AS turnstile ON turnstile.name = policy.turnstile
        WHERE turnstile.starts IS NULL AND policy.lane_starts IS NULL AND NOT policy.ordered) AS ahead
FROM pulse.dispatch_control
WHERE id = 1;

-- name: lock_free_switch
-- Locks the switch for a change that met a lock. No row if another session has it locked.
SELECT id FROM pulse.dispatch_control WHERE id = 1 FOR UPDATE SKIP LOCKED;

-- name: pause_everything
-- Pausing again keeps the time, and takes the new reason and its author.
UPDATE pulse.dispatch_control
SET paused = true, reason = $1, paused_by = $2, paused_at = COALESCE(paused_at, clock_timestamp())
WHERE id = 1;

-- name: resume_everything
UPDATE pulse.dispatch_control SET paused = false, reason = '', paused_by = '', paused_at = NULL WHERE id = 1;

-- name: pause_topic
INSERT INTO pulse.barred_topics (topic, reason, paused_by) VALUES ($1, $2, $3)
ON CONFLICT (topic) DO UPDATE
SET paused = true,
    reason = EXCLUDED.reason,
    paused_by = EXCLUDED.paused_by,
    paused_at = CASE WHEN barred_topics.paused THEN barred_topics.paused_at ELSE EXCLUDED.paused_at END;

-- name: resume_topic
-- The row of a limited topic stays. `limited` is read behind the lock on the row: another session
-- may be changing it.
WITH barred AS MATERIALIZED (
    SELECT limited FROM pulse.barred_topics WHERE topic = $1 FOR UPDATE
),
resumed AS (
    UPDATE pulse.barred_topics SET paused = false, reason = '', paused_by = ''
    WHERE topic = $1 AND (SELECT barred.limited FROM barred)
)
DELETE FROM pulse.barred_topics WHERE topic = $1 AND NOT (SELECT barred.limited FROM barred);
