"""The U-shaped graph: layout, folding, arcs and payload."""
