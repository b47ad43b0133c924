"""Tables of private names in other packages."""
