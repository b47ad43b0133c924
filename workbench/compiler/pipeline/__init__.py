"""Levers at work inside one Thunder compilation."""
