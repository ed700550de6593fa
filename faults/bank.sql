-- The tables of an application that moves money: they are in the database of the run, and it has a role of its own.

CREATE ROLE bank LOGIN;
CREATE SCHEMA bank AUTHORIZATION bank;
SET ROLE bank;

CREATE TABLE bank.accounts (
    id      integer PRIMARY KEY,
    balance bigint  NOT NULL
) WITH (fillfactor = 20);

-- A transfer that was asked for, stored in one transaction with its job.
CREATE TABLE bank.wishes (
    key    text    PRIMARY KEY,
    job_id uuid    NOT NULL,
    origin integer NOT NULL,
    target integer NOT NULL,
    amount integer NOT NULL
);

-- A transfer that was made. Nothing here prevents a second one of the same wish: the checker looks for it.
CREATE TABLE bank.transfers (
    key    text    NOT NULL,
    job_id uuid    NOT NULL,
    run    integer NOT NULL,
    worker text    NOT NULL
);

RESET ROLE;
GRANT USAGE ON SCHEMA pulse TO bank;
GRANT EXECUTE ON FUNCTION pulse.enqueue, pulse.complete_job TO bank;
