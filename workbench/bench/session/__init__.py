"""One program with its choices, its plan and its history."""
