-- Records what runs, what waits in lanes, and the limits in force, in the order of the commits: for
-- the rules of limits. Apart from what the server itself counts. Needs track_commit_timestamp.

CREATE TABLE audit.limits (
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    xid          xid         NOT NULL DEFAULT pg_current_xact_id()::xid,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    statement_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    -- start, end: of a run. wait: a job of a lane may start. drop: it will not start any more.
    -- policy, pool, lane: changed.
    what         text        NOT NULL,
    name         text        NOT NULL,  -- the topic, or the pool
    lane         text,
    job_id       uuid,
    moment       timestamptz,           -- a run began, a hold ends, a job was submitted
    facts        jsonb                  -- null: it is gone
);

CREATE FUNCTION audit.job_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job         pulse.jobs := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    was_running boolean := TG_OP <> 'INSERT' AND OLD.locked_by IS NOT NULL;
    was_waiting boolean := TG_OP <> 'INSERT' AND OLD.queued AND OLD.locked_by IS NULL;
    is_running  boolean := TG_OP <> 'DELETE' AND NEW.locked_by IS NOT NULL;
    is_waiting  boolean := TG_OP <> 'DELETE' AND NEW.queued AND NEW.locked_by IS NULL;
BEGIN
    IF is_running AND NOT was_running THEN
        INSERT INTO audit.limits (what, name, lane, job_id, moment, facts)
        VALUES ('start', job.topic, job.lane, job.id, job.started_at, jsonb_build_object('pool', job.pool));
    ELSIF was_running AND NOT is_running THEN
        INSERT INTO audit.limits (what, name, lane, job_id, facts)
        VALUES ('end', job.topic, job.lane, job.id,
                jsonb_build_object('again', TG_OP = 'UPDATE' AND job.status = 'RETRYING'));
    ELSIF job.lane <> '' AND TG_OP <> 'INSERT' AND OLD.finished_at IS NULL
        AND (TG_OP = 'DELETE' OR NEW.finished_at IS NOT NULL)
    THEN
        INSERT INTO audit.limits (what, name, lane, job_id) VALUES ('drop', job.topic, job.lane, job.id);
    END IF;
    -- An insert whose statement calls a function that claims the job, or takes it back, is audited after that.
    IF job.lane <> '' AND is_waiting AND (NOT was_waiting OR NEW.priority <> OLD.priority)
        AND EXISTS (SELECT FROM pulse.jobs AS known WHERE known.id = job.id AND known.queued AND known.locked_by IS NULL)
    THEN
        INSERT INTO audit.limits (what, name, lane, job_id, moment, facts)
        VALUES ('wait', job.topic, job.lane, job.id, job.submitted_at, jsonb_build_object('priority', job.priority));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_limits AFTER INSERT OR UPDATE OR DELETE ON pulse.jobs
    FOR EACH ROW EXECUTE FUNCTION audit.job_limits();

CREATE FUNCTION audit.policy_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.limits (what, name) VALUES ('policy', OLD.topic);
    ELSE
        INSERT INTO audit.limits (what, name, facts)
        VALUES ('policy', NEW.topic, to_jsonb(NEW) || jsonb_build_object(
            'lane_seconds', date_part('epoch', NEW.lane_period), 'ages', NEW.aging IS NOT NULL));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON pulse.limit_policies
    FOR EACH ROW EXECUTE FUNCTION audit.policy_changed();

CREATE FUNCTION audit.pool_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.limits (what, name) VALUES ('pool', OLD.name);
    ELSE
        INSERT INTO audit.limits (what, name, moment, facts)
        VALUES ('pool', NEW.name, NEW.closed_until, jsonb_build_object(
            'limit', NEW.limit, 'starts', NEW.starts, 'seconds', date_part('epoch', NEW.period)));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_made AFTER INSERT OR DELETE ON pulse.pools
    FOR EACH ROW EXECUTE FUNCTION audit.pool_changed();
CREATE TRIGGER audit_changed AFTER UPDATE ON pulse.pools FOR EACH ROW
    WHEN ((OLD.limit, OLD.starts, OLD.period, OLD.closed_until)
          IS DISTINCT FROM (NEW.limit, NEW.starts, NEW.period, NEW.closed_until))
    EXECUTE FUNCTION audit.pool_changed();

CREATE FUNCTION audit.lane_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO audit.limits (what, name, lane) VALUES ('lane', OLD.topic, OLD.lane);
    ELSE
        INSERT INTO audit.limits (what, name, lane, facts)
        VALUES ('lane', NEW.topic, NEW.lane, jsonb_build_object('limit', NEW.limit));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_made AFTER INSERT ON pulse.lanes FOR EACH ROW
    WHEN (NEW.limit IS NOT NULL) EXECUTE FUNCTION audit.lane_changed();
CREATE TRIGGER audit_changed AFTER UPDATE ON pulse.lanes FOR EACH ROW
    WHEN (OLD.limit IS DISTINCT FROM NEW.limit) EXECUTE FUNCTION audit.lane_changed();
CREATE TRIGGER audit_gone AFTER DELETE ON pulse.lanes FOR EACH ROW
    WHEN (OLD.limit IS NOT NULL) EXECUTE FUNCTION audit.lane_changed();
