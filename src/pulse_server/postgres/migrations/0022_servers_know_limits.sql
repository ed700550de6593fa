-- Servers of a version without flow control write their rows without this column. Beside them no topic gets its first limit:
-- the runs that they end are not counted as ended. ADR-0065

ALTER TABLE pulse.servers ADD COLUMN knows_limits boolean NOT NULL DEFAULT false;

-- Since when the server has been heard of without falling silent. NULL: of a server that does not know of this. ADR-0072
ALTER TABLE pulse.servers ADD COLUMN steady_since timestamptz;
