"""From a program to a trace: Dynamo, FX graphs, Thunder's interpreter and programs of ranks."""
