"""Submit, report, lease, reap, promote, cancel, retry, undo, wait and forget: services and RPCs over jobs."""
