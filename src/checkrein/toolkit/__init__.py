"""Shipped tools: files below a run's folder, and SQL over its tables.

Each is declared idempotent, so a crash in the middle of one never blocks a run. Every path goes through `paths.py`, and every query through a read-only
authorizer.
"""
