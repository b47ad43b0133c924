"""What a person sees: ipywidgets, anywidget and Bokeh. Reads plans and event logs; computes nothing."""
