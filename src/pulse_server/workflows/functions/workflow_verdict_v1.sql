-- What becomes of a job of a workflow, by the counts of its parents: waiting, ready, dropped or
-- skipped. docs/reference/workflows.md has the table. ADR-0077
CREATE OR REPLACE FUNCTION pulse.workflow_verdict_v1(condition text, unended integer, failed integer, skipped integer)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE condition
        WHEN 'succeeded' THEN CASE
            WHEN failed > 0 THEN 'dropped' WHEN skipped > 0 THEN 'skipped' WHEN unended = 0 THEN 'ready' ELSE 'waiting'
        END
        WHEN 'always' THEN CASE WHEN unended = 0 THEN 'ready' ELSE 'waiting' END
        ELSE CASE WHEN unended > 0 THEN 'waiting' WHEN failed > 0 THEN 'ready' ELSE 'skipped' END
    END
$$;
