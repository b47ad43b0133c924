"""Runs: one compile and execution under a config, in a process of its own, reported by an event log."""
