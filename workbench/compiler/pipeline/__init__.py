"""Apply levers in one compilation by Thunder."""
