"""Choices about saved tensors for plain PyTorch, without Thunder."""
