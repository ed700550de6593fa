-- What a kit adds to the database of its pulsed: a clock that it moves, and a way back to an empty database.
SET search_path = pg_catalog;
CREATE SCHEMA pulse_kit;
-- The time, in microseconds since 1970. Each reading of clock_timestamp() moves it by one.
CREATE SEQUENCE pulse_kit.clock;
CREATE FUNCTION pulse_kit.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$ SELECT 'epoch'::timestamptz + nextval('pulse_kit.clock') * interval '1 microsecond' $$;
CREATE FUNCTION pulse_kit.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
    $$ BEGIN RETURN 'epoch'::timestamptz + pg_sequence_last_value('pulse_kit.clock') * interval '1 microsecond'; END $$;
-- The middle of what a backoff with jitter draws from.
CREATE FUNCTION pulse_kit.random() RETURNS float8 LANGUAGE sql VOLATILE AS 'SELECT 0.5::float8';
CREATE FUNCTION pulse_kit.move(at bigint) RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$ SELECT setval('pulse_kit.clock', GREATEST(at, last_value)) FROM pulse_kit.clock; SELECT pulse_kit.now() $$;
DO $$
DECLARE
    one   record;
    body  text := '';
    has   boolean;
    names text := '';
BEGIN
    FOR one IN
        SELECT oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = 'pulse'::regnamespace AND 'search_path=pg_catalog, pg_temp' = ANY(proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pulse_kit, pg_catalog, pg_temp', one.name);
    END LOOP;
    FOR one IN
        SELECT adrelid::regclass AS name, attname, pg_get_expr(adbin, adrelid) AS expression
        FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE pg_get_expr(adbin, adrelid) IN ('clock_timestamp()', 'now()')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT pulse_kit.%s', one.name, one.attname, one.expression);
    END LOOP;
    -- begin() empties the tables that were written. Most kits write a few of them.
    FOR one IN
        SELECT relname AS name, oid::regclass::text AS relation FROM pg_class
        WHERE relnamespace = 'pulse'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
          AND relname <> 'schema_migrations'
    LOOP
        names := names || ', ' || one.relation;
        EXECUTE format('SELECT EXISTS (TABLE %s)', one.relation) INTO has;
        IF has THEN
            EXECUTE format('CREATE TABLE pulse_kit.%I AS TABLE %s', one.name, one.relation);
            body := body || format(
                'IF EXISTS ((TABLE %1$s EXCEPT TABLE pulse_kit.%2$I) UNION ALL (TABLE pulse_kit.%2$I EXCEPT TABLE %1$s)) THEN '
                || 'DELETE FROM %1$s; INSERT INTO %1$s TABLE pulse_kit.%2$I; END IF;', one.relation, one.name);
        ELSE
            body := body || format(
                'IF EXISTS (SELECT FROM %1$s) THEN '
                || 'DELETE FROM %1$s; GET DIAGNOSTICS here = ROW_COUNT; deleted := deleted + here; END IF;', one.relation);
        END IF;
    END LOOP;
    EXECUTE format(
        'CREATE FUNCTION pulse_kit.begin(at bigint) RETURNS bigint LANGUAGE plpgsql AS %L',
        'DECLARE here bigint; deleted bigint := 0; BEGIN ' || body
        || ' PERFORM setval(''pulse_kit.clock'', at); RETURN deleted; END');
    EXECUTE format(
        'CREATE FUNCTION pulse_kit.tables() RETURNS text LANGUAGE sql AS %L', format('SELECT %L', substr(names, 3)));
END $$;
-- A given server keeps its own settings. Of this database, nothing has to survive a crash.
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$;
