"""Exit statuses of the command line."""

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
SIGNALLED = 128
"""Added to the number of the signal that ended a child."""
UNREAD = 141
"""The output pipe was closed; a shell reports this status for any such command."""
