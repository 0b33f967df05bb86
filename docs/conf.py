"""Sphinx's configuration."""

project = "Tidelog"
author = "The Tidelog founders"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Tidelog"
html_show_sourcelink = False
nitpicky = True
autodoc_default_options = {"show-inheritance": True, "exclude-members": "__init__, __new__"}
autodoc_member_order = "bysource"
default_role = "code"
# Types of signatures have no page of their own.
nitpick_ignore_regex = [("py:.*", ".*")]
# Several classes have a `type`.
suppress_warnings = ["ref.python"]
