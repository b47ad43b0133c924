"""Apply levers inside of one compilation by Thunder."""
