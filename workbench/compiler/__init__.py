"""All that touches Thunder's insides."""

import warnings

with warnings.catch_warnings():
    # Thunder says on import that an optional executor is missing; nobody here asked for it.
    warnings.filterwarnings("ignore", message="transformer_engine module not found")
    import thunder  # noqa: F401
