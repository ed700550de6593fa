"""Text that the CLI and the dashboard share: statuses, durations, moments, printable text. Pure."""
