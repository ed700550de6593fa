-- Workers whose beats arrived at a server and could not be stored: a locked row, a full disk, a slow statement. No
-- server reaps their jobs until the moment that such a beat would have set. ADR-0042
CREATE TABLE pulse.spared_workers (
    worker_id    text        NOT NULL,
    spared_until timestamptz NOT NULL,
    CONSTRAINT spared_workers_pkey PRIMARY KEY (worker_id)
);

-- From when on a server that was not heard of again counts as cut off from the database, and until when the workers
-- that were connected to it are spared for it. NULL: of a server that does not know of this.
ALTER TABLE pulse.servers
    ADD COLUMN silent_from timestamptz,
    ADD COLUMN workers_spared_until timestamptz;
