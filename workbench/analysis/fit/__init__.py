"""Save, recompute or offload under a stated peak."""
