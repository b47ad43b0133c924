"""The user interface: ipywidgets, anywidget and Bokeh. It reads plans and event logs, and computes nothing."""
