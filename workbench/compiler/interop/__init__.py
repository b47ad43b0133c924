"""Private names of Thunder and nvFuser that the workbench uses, and patches of Thunder and PyTorch."""
