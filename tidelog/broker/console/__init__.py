"""The console: the pages of a broker under /console and its JSON API under /api/v1, on the HTTP port.

Nothing here is imported before the first visitor. A page shows what routes of the API answer, by a template
of `templates/`; what browsers load is in `static/`, with the libraries of others and their licences in
`static/vendor/`.
"""
