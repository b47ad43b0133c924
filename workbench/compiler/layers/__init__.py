"""Repeated layers: detect them, differentiate a reduced model, expand the trace."""
