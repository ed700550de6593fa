-- Takes the notices of a locked pool. Returns the number of ended runs. Notices of open
-- transactions stay for the next claim. So do notices after the first 2,000 lanes (has_more), which
-- take a claim 20 ms.
CREATE OR REPLACE FUNCTION pulse.take_notices_v1(of_pool text, OUT ended integer, OUT has_more boolean) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tids   tid[];
    news   record;
    policy pulse.limit_policies;
BEGIN
    ended := 0;
    has_more := false;
    PERFORM FROM pulse.limit_notices AS next WHERE next.pool = of_pool LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(counted.tid) FILTER (WHERE counted.before < 2000), COALESCE(bool_or(counted.before >= 2000), false)
    INTO tids, has_more
    FROM (
        SELECT notice.tid, sum(notice.size) OVER (ROWS UNBOUNDED PRECEDING) - notice.size AS before
        FROM (
            SELECT next.ctid AS tid, COALESCE(cardinality(next.lanes), 1) AS size
            FROM pulse.limit_notices AS next
            WHERE next.pool = of_pool
            LIMIT 2001
        ) AS notice
    ) AS counted;
    FOR news IN
        WITH taken AS (
            DELETE FROM pulse.limit_notices AS notice
            WHERE notice.ctid = ANY(tids)
            RETURNING notice.topic, notice.lanes, notice.ended
        )
        SELECT
            runs.topic, runs.ended,
            (SELECT array_agg(DISTINCT lane.name)
             FROM taken CROSS JOIN LATERAL unnest(taken.lanes) AS lane (name)
             WHERE taken.topic = runs.topic) AS lanes
        FROM (SELECT taken.topic, sum(taken.ended) AS ended FROM taken GROUP BY taken.topic) AS runs
    LOOP
        ended := ended + news.ended;
        IF news.lanes IS NOT NULL THEN
            SELECT * INTO policy FROM pulse.limit_policies AS known WHERE known.topic = news.topic AND known.laned;
            -- A statement that began before the topic moved has named the previous pool.
            IF policy.pool <> of_pool THEN
                PERFORM pulse.notice_lanes_v1(policy, news.lanes);
            ELSIF FOUND THEN
                PERFORM pulse.open_lanes_v1(policy, news.lanes);
            END IF;
        END IF;
    END LOOP;
END
$$;
