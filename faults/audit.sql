-- Records every change of jobs, pauses and cursors of schedules, and every wait for a signal that ends without one, for
-- the checker.
--
-- Rows that change one job wait for each other's locks until the commit, and seq is drawn under that lock: for one
-- job the order of seq is the order of the commits. So it is for one switch and for one schedule. Across jobs it is
-- not: a transaction that drew the lower number may commit later, or be the later one to be seen.
--
-- The tables are logged: they must survive what the jobs survive, and be lost with them.

CREATE SCHEMA audit;

CREATE TABLE audit.job_changes (
    seq              bigint GENERATED ALWAYS AS IDENTITY,
    txid             bigint      NOT NULL DEFAULT txid_current(),
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at     timestamptz NOT NULL DEFAULT statement_timestamp(),  -- when its statement began
    id               uuid        NOT NULL,
    topic            text        NOT NULL,
    -- Only in the insert.
    key              text,
    schedule_id      uuid,
    unique_key       text,        -- with its scope before it
    submitted_at     timestamptz,
    -- How an attempt ended that was no success; null where the change ended none.
    outcome          text,
    -- Null where there was no row before.
    old_status       text,
    old_attempts     integer,
    old_run          integer,     -- of the last claim
    old_max_attempts integer,
    old_locked_by    text,
    old_lease_until  timestamptz,
    old_ready        boolean,
    old_delivered    boolean,
    old_finished_by  text,
    old_snoozes      integer,
    old_crashes      integer,
    old_start_by     timestamptz,
    old_progress     text,        -- its cursor, which names its writer
    old_priority     integer,
    old_held         boolean     NOT NULL DEFAULT false,  -- it waits for jobs of its workflow
    -- Null where there is no row any more.
    new_status       text,
    new_attempts     integer,
    new_run          integer,
    new_max_attempts integer,
    new_locked_by    text,
    new_lease_until  timestamptz,
    new_ready        boolean,
    new_delivered    boolean,
    new_finished_by  text,
    new_snoozes      integer,
    new_crashes      integer,
    new_start_by     timestamptz,
    new_progress     text,
    new_priority     integer,
    new_held         boolean     NOT NULL DEFAULT false
);

-- A caller's key: the idempotency key, else the field "key" at the beginning of a JSON payload. Made for any bytes.
CREATE FUNCTION audit.key_of(job pulse.jobs) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(
        job.idempotency_key,
        substring(encode(substring(job.payload FROM 1 FOR 200), 'escape') FROM '^\{ *"key": *"([^"]*)"'))
$$;

CREATE INDEX job_changes_of_a_transaction ON audit.job_changes (id, txid);

CREATE FUNCTION audit.job_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Taken back by completed_among, before this trigger ran: a repeat of a completed job.
        DELETE FROM audit.job_changes AS taken_back
        WHERE taken_back.id = NEW.id AND taken_back.txid = txid_current() AND taken_back.new_status IS NULL;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        INSERT INTO audit.job_changes (
            id, topic, key, schedule_id, unique_key, submitted_at, new_status, new_attempts, new_run, new_max_attempts,
            new_locked_by, new_lease_until, new_ready, new_delivered, new_finished_by, new_snoozes, new_crashes, new_start_by, new_priority,
            new_held)
        VALUES (
            NEW.id, NEW.topic, audit.key_of(NEW), NEW.schedule_id, NEW.unique_scope || ' ' || NEW.unique_key, NEW.submitted_at,
            NEW.status, NEW.attempts, NEW.run, NEW.max_attempts, NEW.locked_by, NEW.lease_until, NEW.queued AND NEW.locked_by IS NULL,
            NEW.delivered, NEW.finished_by,
            COALESCE(NEW.snoozes, 0), COALESCE(NEW.crashes, 0), NEW.start_by, NEW.priority, COALESCE(NEW.held, false));
        -- Claimed by the statement that inserts it, in a function whose triggers ran before this one.
        UPDATE audit.job_changes AS claimed
        SET seq = DEFAULT, at = clock_timestamp()
        WHERE claimed.id = NEW.id AND claimed.txid = txid_current() AND claimed.old_status IS NOT NULL;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO audit.job_changes (
            id, topic, outcome, old_status, old_attempts, old_run, old_max_attempts, old_locked_by, old_lease_until,
            old_ready, old_delivered, old_finished_by, old_snoozes, old_crashes, old_start_by, old_progress, old_priority,
            new_status, new_attempts, new_run, new_max_attempts, new_locked_by, new_lease_until, new_ready, new_delivered,
            new_finished_by, new_snoozes, new_crashes, new_start_by, new_progress, new_priority, old_held, new_held)
        VALUES (
            NEW.id, NEW.topic,
            CASE WHEN NEW.history IS DISTINCT FROM OLD.history THEN NEW.history -> -1 ->> 'outcome' END,
            OLD.status, OLD.attempts, OLD.run, OLD.max_attempts, OLD.locked_by, OLD.lease_until,
            OLD.queued AND OLD.locked_by IS NULL, OLD.delivered, OLD.finished_by,
            COALESCE(OLD.snoozes, 0), COALESCE(OLD.crashes, 0), OLD.start_by, OLD.progress ->> 'cursor',
            OLD.priority, NEW.status, NEW.attempts, NEW.run, NEW.max_attempts,
            NEW.locked_by, NEW.lease_until, NEW.queued AND NEW.locked_by IS NULL, NEW.delivered, NEW.finished_by,
            COALESCE(NEW.snoozes, 0), COALESCE(NEW.crashes, 0), NEW.start_by, NEW.progress ->> 'cursor',
            NEW.priority, COALESCE(OLD.held, false), COALESCE(NEW.held, false));
    ELSE
        INSERT INTO audit.job_changes (
            id, topic, old_status, old_attempts, old_run, old_max_attempts, old_locked_by, old_lease_until, old_ready,
            old_delivered, old_finished_by, old_snoozes, old_crashes, old_start_by, old_progress, old_priority, old_held)
        VALUES (
            OLD.id, OLD.topic, OLD.status, OLD.attempts, OLD.run, OLD.max_attempts, OLD.locked_by, OLD.lease_until,
            OLD.queued AND OLD.locked_by IS NULL, OLD.delivered, OLD.finished_by,
            COALESCE(OLD.snoozes, 0), COALESCE(OLD.crashes, 0), OLD.start_by, OLD.progress ->> 'cursor', OLD.priority,
            COALESCE(OLD.held, false));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON pulse.jobs
    FOR EACH ROW EXECUTE FUNCTION audit.job_changed();

-- A completed job moves: what was recorded as the delete of its row is the change to COMPLETED.
CREATE FUNCTION audit.completed_job_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.job_changes (
            id, topic, old_status, old_attempts, old_run, old_max_attempts, old_ready, old_delivered, old_finished_by,
            old_snoozes, old_crashes, old_priority)
        VALUES (
            OLD.id, OLD.topic, 'COMPLETED', OLD.attempts, OLD.run, OLD.max_attempts, false, OLD.delivered, OLD.finished_by,
            COALESCE(OLD.snoozes, 0), COALESCE(OLD.crashes, 0), OLD.priority);
        RETURN NULL;
    END IF;
    UPDATE audit.job_changes AS change
    SET new_status = 'COMPLETED', new_attempts = NEW.attempts, new_run = NEW.run,
        new_max_attempts = NEW.max_attempts, new_ready = false, new_delivered = NEW.delivered, new_finished_by = NEW.finished_by,
        new_snoozes = COALESCE(NEW.snoozes, 0), new_crashes = COALESCE(NEW.crashes, 0), new_priority = NEW.priority
    WHERE change.id = NEW.id AND change.txid = txid_current() AND change.new_status IS NULL;
    IF NOT FOUND THEN
        INSERT INTO audit.job_changes (
            id, topic, new_status, new_attempts, new_run, new_max_attempts, new_ready, new_delivered, new_finished_by,
            new_snoozes, new_crashes, new_priority)
        VALUES (
            NEW.id, NEW.topic, 'COMPLETED', NEW.attempts, NEW.run, NEW.max_attempts, false, NEW.delivered, NEW.finished_by,
            COALESCE(NEW.snoozes, 0), COALESCE(NEW.crashes, 0), NEW.priority);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER INSERT OR DELETE ON pulse.completed_jobs
    FOR EACH ROW EXECUTE FUNCTION audit.completed_job_changed();

-- The pauses. The one of everything has the topic ''. A topic with limits has a row, paused or not.
CREATE TABLE audit.switch_changes (
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    txid         bigint      NOT NULL DEFAULT txid_current(),
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    topic        text        NOT NULL,
    paused       boolean     NOT NULL
);

CREATE FUNCTION audit.everything_switched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.switch_changes (topic, paused) VALUES ('', NEW.paused);
    RETURN NULL;
END
$$;

CREATE FUNCTION audit.topic_switched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.switch_changes (topic, paused)
    VALUES (CASE WHEN TG_OP = 'DELETE' THEN OLD.topic ELSE NEW.topic END, TG_OP <> 'DELETE' AND NEW.paused);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE ON pulse.dispatch_control
    FOR EACH ROW EXECUTE FUNCTION audit.everything_switched();
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON pulse.barred_topics
    FOR EACH ROW EXECUTE FUNCTION audit.topic_switched();

-- The schedules: where the cursor was, where it went, and by which timetable.
CREATE TABLE audit.schedule_changes (
    seq             bigint GENERATED ALWAYS AS IDENTITY,
    txid            bigint      NOT NULL DEFAULT txid_current(),
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    id              uuid        NOT NULL,
    old_next_run_at timestamptz,  -- null: it was made
    old_paused      boolean,
    new_next_run_at timestamptz,  -- null: it is gone
    new_paused      boolean,
    last_run_at     timestamptz,
    is_edit         boolean     NOT NULL,  -- a client changed the definition; a fire does not
    -- Of the row as it is afterwards, or was at last.
    kind            text        NOT NULL,
    run_at          timestamptz,
    interval_ms     bigint,
    cron_expr       text,
    time_zone       text        NOT NULL,
    catch_up        text        NOT NULL,
    overlap         text        NOT NULL,
    queued_for      timestamptz            -- before the change: the occurrence that waits for the end of a job
);

CREATE FUNCTION audit.schedule_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    schedule pulse.schedules := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO audit.schedule_changes (
        id, old_next_run_at, old_paused, new_next_run_at, new_paused, last_run_at, is_edit,
        kind, run_at, interval_ms, cron_expr, time_zone, catch_up, overlap, queued_for)
    VALUES (
        schedule.id,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.next_run_at END,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.paused END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.next_run_at END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.paused END,
        schedule.last_run_at,
        CASE WHEN TG_OP = 'UPDATE' THEN NEW.updated_at <> OLD.updated_at ELSE TG_OP = 'INSERT' END,
        schedule.kind, schedule.run_at, schedule.interval_ms, schedule.cron_expr, schedule.time_zone,
        schedule.catch_up, schedule.overlap, CASE WHEN TG_OP <> 'INSERT' THEN OLD.queued_for END);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON pulse.schedules
    FOR EACH ROW EXECUTE FUNCTION audit.schedule_changed();

-- The waits for a signal that ended because it did not come in time. Written under the lock on the job, as signals are.
CREATE TABLE audit.late_waits (
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    txid         bigint      NOT NULL DEFAULT txid_current(),
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    job_id       uuid        NOT NULL,
    attempt      integer     NOT NULL
);

CREATE FUNCTION audit.wait_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.late_waits (job_id, attempt) VALUES (NEW.job_id, NEW.attempt);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER UPDATE ON pulse.job_steps
    FOR EACH ROW
    WHEN (OLD.stored_at IS NULL AND NEW.stored_at IS NOT NULL AND NEW.signal_id IS NULL)
    EXECUTE FUNCTION audit.wait_ended();

-- How settlers counted the ends of jobs of workflows. Written under the lock on the workflow.
CREATE TABLE audit.outcomes (
    seq          bigint      NOT NULL DEFAULT nextval(pg_get_serial_sequence('audit.job_changes', 'seq')),
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    job_id       uuid        NOT NULL,
    outcome      text         -- null: the job has not ended
);

CREATE FUNCTION audit.outcome_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.outcomes (job_id, outcome) VALUES (NEW.job_id, NEW.outcome);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER UPDATE OF outcome ON pulse.workflow_jobs
    FOR EACH ROW WHEN (OLD.outcome IS DISTINCT FROM NEW.outcome) EXECUTE FUNCTION audit.outcome_changed();

-- The cancels of workflows as a whole, and the retries that took them back.
CREATE TABLE audit.workflow_changes (
    seq          bigint      NOT NULL DEFAULT nextval(pg_get_serial_sequence('audit.job_changes', 'seq')),
    txid         bigint      NOT NULL DEFAULT txid_current(),
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    workflow_id  uuid        NOT NULL,
    is_canceled  boolean     NOT NULL
);

CREATE FUNCTION audit.workflow_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.workflow_changes (workflow_id, is_canceled) VALUES (NEW.id, NEW.canceled_at IS NOT NULL);
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER UPDATE OF canceled_at ON pulse.workflows
    FOR EACH ROW WHEN ((OLD.canceled_at IS NULL) <> (NEW.canceled_at IS NULL)) EXECUTE FUNCTION audit.workflow_changed();
