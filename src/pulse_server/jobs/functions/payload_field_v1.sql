-- A field of a payload as text; NULL if there is no such field, the payload is not JSON, or larger
-- than 64 KiB. For searches, and for the indexes that an administrator makes for them: it depends on
-- its arguments alone.
CREATE OR REPLACE FUNCTION pulse.payload_field_v1(payload bytea, path text[])
RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The size of a large payload is known without reading it.
    IF octet_length(payload) NOT BETWEEN 2 AND 65536 THEN
        RETURN NULL;
    END IF;
    RETURN convert_from(payload, 'UTF8')::jsonb #>> path;
EXCEPTION
    WHEN data_exception OR statement_too_complex OR program_limit_exceeded THEN
        RETURN NULL;
END $$;
