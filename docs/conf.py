"""Sphinx's configuration."""

project = "Tidelog"
author = "The Tidelog founders"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Tidelog"
html_show_sourcelink = False
nitpicky = True
