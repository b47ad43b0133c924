"""Public types: `Graph`, `Config`, `Lever`, `Site`, `Executor`. Also the registries of levers and executors."""
