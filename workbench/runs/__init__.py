"""Runs: one compilation and execution under a config, in a separate process, reported by an event log."""
