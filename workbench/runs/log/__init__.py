"""The event log of a run: records, writer and checked reader."""
