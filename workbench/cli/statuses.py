"""Exit statuses of the command line."""

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
SIGNALLED = 128
"""And the number of the signal that ended what was started."""
UNREAD = 141
"""Nobody reads what is printed, as a shell says it of any command that writes into a closed pipe."""
