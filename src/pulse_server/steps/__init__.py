"""Steps and signals of jobs: rules, store, service and RPCs. ADR-0069"""
