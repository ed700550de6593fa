-- At the commit of a transaction that enqueued a job with the unique key of a waiting job. If that
-- job still waits, the submit is its duplicate, and no claim takes it before the commit. If it has
-- started, it may not see what this transaction has written: the job is stored now. ADR-0066
CREATE OR REPLACE FUNCTION pulse.enqueue_again_v1() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pulse.open_duplicates AS known
    WHERE known.topic = NEW.topic AND known.unique_key = NEW.unique_key AND known.unique_scope = NEW.unique_scope;
    PERFORM pulse.enqueue_rich_v1(
        NEW.id, NEW.topic, NEW.payload, NEW.priority, NEW.max_attempts, NEW.idempotency_key, NEW.metadata, NEW.run_at, NULL,
        NEW.start_within, NEW.lane, NEW.unique_key, NEW.unique_scope, 'skip', NULL, NULL, NEW.id_is_given, true);
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.enqueue_again_v1 FROM PUBLIC;
