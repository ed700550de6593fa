-- A new id: UUIDv7 by the clock of the database. PostgreSQL has a function for it from version 18
-- on.
CREATE OR REPLACE FUNCTION pulse.new_job_id_v1() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        set_bit(set_bit(overlay(
            uuid_send(gen_random_uuid())
            PLACING substring(int8send((date_part('epoch', clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6
        ), 52, 1), 53, 1), 'hex')::uuid
$$;
