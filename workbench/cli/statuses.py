"""Exit statuses of the command line."""

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
SIGNALLED = 128
"""And the number of the signal that ended what was started."""
UNREAD = 141
"""The output pipe was closed: the status that a shell reports for any such command."""
