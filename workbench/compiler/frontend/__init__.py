"""Front ends that turn a program into a trace: Dynamo, FX graphs, Thunder's interpreter and programs of ranks."""
