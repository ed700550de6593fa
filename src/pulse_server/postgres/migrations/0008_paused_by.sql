-- Who paused. Empty: an open server asks for no user, and pauses of before this migration name none. The default is a
-- constant: a server of the release before pauses as it did.
ALTER TABLE pulse.dispatch_control ADD COLUMN paused_by text NOT NULL DEFAULT '';
ALTER TABLE pulse.paused_topics ADD COLUMN paused_by text NOT NULL DEFAULT '';
