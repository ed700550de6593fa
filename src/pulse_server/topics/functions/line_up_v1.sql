-- Puts places of lanes at the end of the line, in this order.
CREATE OR REPLACE FUNCTION pulse.line_up_v1(of_topic text, names text[], free integer[]) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pulse.lane_line (topic, lanes, places)
    SELECT of_topic, array_agg(lane.name ORDER BY lane.number), lane.places
    FROM unnest(names, free) WITH ORDINALITY AS lane (name, places, number)
    GROUP BY lane.places, (lane.number - 1) / 64
    ORDER BY min(lane.number)
$$;
