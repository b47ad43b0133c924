"""The user interface: ipywidgets, anywidget and Bokeh. It shows plans and event logs, and computes no figures."""
