"""Durable, verified runs: tasks, the journal of one run, leases, the worker, recovery and replay."""
