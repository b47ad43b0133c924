"""Exit statuses of the command line."""

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
SIGNALLED = 128
"""Number that is added to the number of the signal that ended a child process."""
UNREAD = 141
"""Status if the output pipe was closed. A shell reports the same status for a command that SIGPIPE ended."""
