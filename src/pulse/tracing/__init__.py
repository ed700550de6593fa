"""Traces of jobs, for applications that use OpenTelemetry."""
