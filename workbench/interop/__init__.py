"""`PrivateApi`, the class of tables of private names, and the table for PyTorch."""
