"""Save, recompute or offload under a memory budget."""
