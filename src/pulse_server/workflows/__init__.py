"""Workflows: jobs that wait for jobs. Rules, store, service and RPCs. ADR-0077"""
