"""Search for choices within a limit of memory, time or compilations, and rank single choices by their effect."""
