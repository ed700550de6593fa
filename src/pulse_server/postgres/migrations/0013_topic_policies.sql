-- Policies of topics: what an operator has set for the jobs of one topic. A column that is NULL says nothing, and the
-- settings of the server hold. Forever is an interval of 365,000 days. ADR-0058
CREATE TABLE pulse.topic_policies (
    topic              text        NOT NULL,
    completed_kept     interval,
    canceled_kept      interval,
    dead_lettered_kept interval,
    set_by             text        NOT NULL DEFAULT '',
    set_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT topic_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT topic_policies_kept CHECK (
        LEAST(completed_kept, canceled_kept, dead_lettered_kept) >= interval '1 minute'
        AND GREATEST(completed_kept, canceled_kept, dead_lettered_kept) <= interval '365000 days'
    )
);
