"""Private API of Thunder, nvFuser and PyTorch, and the patches of them."""
