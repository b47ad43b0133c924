"""The tabs: one module for each tab, and modules that several tabs share."""
