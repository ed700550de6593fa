-- The audit: one row for each action, written in the transaction of the change. All batches of a bulk
-- action, and refused calls of the same minute, are one row. ADR-0081
CREATE TABLE pulse.audit (
    id        uuid        NOT NULL,           -- of the action
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed   bigint      NOT NULL,           -- how many jobs or settings; of refused calls, how many there were
    user_name text        NOT NULL,           -- empty: an open server asks for no user
    role      text        NOT NULL,
    address   text        NOT NULL,
    method    text        NOT NULL,
    reason    text        NOT NULL,
    outcome   text        NOT NULL,           -- OK or the name of a status code
    refusal   text        NOT NULL DEFAULT '',
    topics    text[]      NOT NULL,           -- the first 64, as ids
    ids       text[]      NOT NULL,           -- of jobs, schedules and workflows
    asked     jsonb       NOT NULL,           -- the filter and short fields of the request
    changes   jsonb       NOT NULL DEFAULT '{}',  -- of settings: the entries that changed, with old and new value
    CONSTRAINT audit_pkey PRIMARY KEY (id)
);
-- list_audit, and delete_old_audit from its end.
CREATE INDEX audit_newest ON pulse.audit (at DESC, id DESC);
CREATE INDEX audit_of_user ON pulse.audit (user_name, at DESC, id DESC);
CREATE INDEX audit_of_method ON pulse.audit (method, at DESC, id DESC);
CREATE INDEX audit_refused ON pulse.audit (at DESC, id DESC) WHERE outcome <> 'OK';
CREATE INDEX audit_subjects ON pulse.audit USING gin (topics, ids);
