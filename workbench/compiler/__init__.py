"""All that touches Thunder's insides."""
