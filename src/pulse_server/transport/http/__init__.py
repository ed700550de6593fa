"""The HTTP port: /healthz, /readyz and /metrics, and nothing else."""
