"""Predict which storages are alive, the peak memory, and the memory that PyTorch's allocator reserves."""
