"""Runs: one compile and execution under a config, in a process of its own, told by an event log."""
