"""Public types, and the registries of levers and executors."""
