-- Claims: from ready to RUNNING. jobs.sql has the rules for all transitions.
--
-- A claim looks at places. A place is a topic, or a level: a topic, a priority and an age. This
-- server knows that no older job of the level can be claimed. Looking at levels skips the index
-- entries of running jobs, and of ended jobs that vacuum cannot remove. ADR-0055

-- name: claim_batch(topics, slots, order, workers, confirms, lease, most_bytes, packed, packed_bytes, priorities, ages)
-- From PENDING or RETRYING, once ready, to RUNNING: the best jobs of one topic, each leased to the
-- worker of its slot. Rows locked by another claim are skipped, so concurrent claims are disjoint.
-- Nothing is claimed while dispatch, or the topic, is paused: this statement reads the switches
-- itself. A batch ends early once its payloads reach :most_bytes; octet_length reads the length
-- from the row, not the payload. ADR-0038
-- :order has the index into :workers of each slot.
-- :packed replaces it if all slots are filled with fewer than :packed_bytes.
-- :priorities has the priority of each place in :topics, the highest first, and :ages the age in
-- seconds; NULL: whole topics.
WITH {places},
candidate AS MATERIALIZED (
    SELECT found.*
    FROM place
    -- Only one of the two arms runs: their filters are evaluated once.
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT {claimable}
            FROM pulse.jobs AS job
            WHERE place.priority IS NULL AND {is_in_whole_topic}
            ORDER BY {claim_order}
            LIMIT :slots
            FOR UPDATE OF job SKIP LOCKED
        ) AS whole
        UNION ALL
        SELECT * FROM (
            SELECT {claimable}
            FROM pulse.jobs AS job
            WHERE place.priority IS NOT NULL AND {is_in_level}
            ORDER BY job.submitted_at, job.id
            LIMIT :slots
            FOR UPDATE OF job SKIP LOCKED
        ) AS level
    ) AS found
    LIMIT :slots
),
{those_that_fit},
{check_picked}
{lease_picked};

-- name: claim_across_topics(topics, slots, order, workers, confirms, lease, most_bytes, packed, packed_bytes, priorities, ages, candidates, of_each)
-- claim_batch for workers of several topics, at the cost of one batch and not of one per topic.
-- Finds the best :candidates jobs over all places without a lock, then locks one per slot.
-- :candidates is more than the slots, so that a claim that finds the best jobs locked takes the
-- next. Also returns the number of candidates, in a row without a job if no job was left.
-- docs/figures.md#claims-over-many-topics
-- The first :of_each jobs of each place are nearly always enough. If all of them are among the
-- best, the place may have more such jobs: it is read further, at last to the end of its share.
WITH {places},
first AS MATERIALIZED (
    WITH reading AS (SELECT place.*, 0 AS skipped, :of_each::int AS taken FROM place)
    SELECT job.*
    FROM ({ready_in_places}) AS job
    -- Sorted once: the sorts below find it in order, which costs them next to nothing.
    ORDER BY {claim_order}
    LIMIT :candidates
),
deep AS MATERIALIZED (
    SELECT place.*
    FROM place
    WHERE place.number IN (SELECT best.number FROM first AS best GROUP BY best.number HAVING count(*) >= :of_each)
),
share AS MATERIALIZED (
    SELECT GREATEST(1, LEAST(64, 2 * :candidates / NULLIF(count(*), 0))) AS of_each FROM deep
),
further AS MATERIALIZED (
    WITH reading AS (SELECT deep.*, :of_each AS skipped, share.of_each AS taken FROM deep CROSS JOIN share)
    {ready_in_places}
),
deepest AS MATERIALIZED (
    SELECT place.*
    FROM deep AS place
    WHERE place.number IN (
        SELECT best.number
        FROM (
            SELECT * FROM (SELECT * FROM first UNION ALL SELECT * FROM further) AS job
            WHERE EXISTS (SELECT FROM deep)
            ORDER BY {claim_order}
            LIMIT :candidates
        ) AS best
        GROUP BY best.number
        HAVING count(*) >= :of_each + (SELECT share.of_each FROM share)
    )
),
furthest AS MATERIALIZED (
    WITH reading AS (
        SELECT deepest.*, :of_each + share.of_each AS skipped, :candidates::int AS taken FROM deepest CROSS JOIN share
    )
    {ready_in_places}
),
best AS MATERIALIZED (
    SELECT job.tid
    FROM (SELECT * FROM first UNION ALL SELECT * FROM further UNION ALL SELECT * FROM furthest) AS job
    ORDER BY {claim_order}
    LIMIT :candidates
),
-- Locked by its address: a row that was changed since it was found is skipped, and stays for the next claim.
candidate AS MATERIALIZED (
    SELECT locked.*
    FROM best
    CROSS JOIN LATERAL (
        SELECT {claimable}
        FROM pulse.jobs AS job
        -- Still claimable, in a form that keeps the planner from walking the claim index for it.
        WHERE job.ctid = best.tid AND job.queued::int = 1 AND job.locked_by IS NULL AND job.tier IS NULL AND {may_start}
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LIMIT :slots
),
{those_that_fit},
{check_picked},
leased AS (
    {lease_picked}
)
SELECT leased.*, (SELECT count(*) FROM best) AS candidates
FROM (SELECT) AS always
LEFT JOIN leased ON true;
