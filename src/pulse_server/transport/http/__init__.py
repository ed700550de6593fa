"""The HTTP port: /healthz, /readyz and /metrics."""
