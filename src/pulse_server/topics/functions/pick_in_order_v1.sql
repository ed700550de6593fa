-- Picks and locks the next jobs of a topic without lanes, in order, at most `room`.
CREATE OR REPLACE FUNCTION pulse.pick_in_order_v1(
    of_topic text, room integer, most_bytes bigint, OUT tids tid[], OUT confirmed boolean[], OUT bytes bigint
) LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    WITH candidate AS MATERIALIZED (
        SELECT {claimable}
        FROM pulse.jobs AS job
        WHERE job.topic = of_topic AND {is_claimable}
        ORDER BY {claim_order}
        LIMIT room
        FOR UPDATE OF job SKIP LOCKED
    ),
    ranked AS (
        SELECT candidate.*, row_number() OVER line AS slot, sum(candidate.bytes) OVER line - candidate.bytes AS bytes_before
        FROM candidate
        WINDOW line AS (ROWS UNBOUNDED PRECEDING)
    )
    SELECT
        array_agg(picked.tid ORDER BY picked.slot), array_agg(picked.must_confirm ORDER BY picked.slot), sum(picked.bytes)
    FROM ranked AS picked
    WHERE picked.slot = 1 OR picked.bytes_before < most_bytes
$$;
