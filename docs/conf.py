"""Sphinx's configuration. The colours and the icon are those of the console."""

from pathlib import Path

import tidelog
from tidelog.version import VERSION

project = "Tidelog"
author = "The Tidelog founders"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 3
html_theme = "furo"
release = VERSION
html_title = f"Tidelog {release}"
html_logo = html_favicon = str(Path(tidelog.__path__[0], "broker/console/static/icon.svg"))
html_show_sourcelink = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0a5a86",
        "color-brand-content": "#0a5a86",
        "color-sidebar-background": "#f5f7f9",
        "font-stack": "system-ui, sans-serif",
        "font-stack--monospace": "ui-monospace, monospace",
    },
    "dark_css_variables": {
        "color-brand-primary": "#74bdee",
        "color-brand-content": "#74bdee",
        "color-background-primary": "#11171d",
        "color-sidebar-background": "#182028",
    },
}
# A copied command has no prompt and no output.
copybutton_prompt_text = "$ "
nitpicky = True
autodoc_default_options = {"show-inheritance": True, "exclude-members": "__init__, __new__"}
autodoc_member_order = "bysource"
default_role = "code"
# Types of signatures have no page of their own.
nitpick_ignore_regex = [("py:.*", ".*")]
# Several classes have a `type`.
suppress_warnings = ["ref.python"]
