"""The user interface: ipywidgets, anywidget and Bokeh. Reads plans and event logs; computes nothing."""
