"""The levers: one file for each kind of decision. The base class is in `workbench.core.lever`."""
