"""The console: the pages of a broker under /console and its JSON API under /api/v1, on the HTTP port.

Nothing here is imported before the first visitor. A page shows what routes of the API answer, by a template
of `templates/`; what browsers load is in `static/`, with the libraries of others and their licences in
`static/vendor/`.

- `answering`: the answer of a route for the whole cluster
- `caller`: who asks: what they may do, and requests to the broker's handlers in their name
- `live`: answers that go on: events for pages that are open, and lines for downloads
- `openapi`: the description of the API, made of the table of routes
- `others`: the way to the consoles of other brokers, and back
- `rendering`: pages from templates; names and records become text, whatever they contain
- `route`: what a route of the API and a page are
- `routes`: the table of all routes and pages
- `safety`: which requests the console refuses because of where they come from
- `records/`: the records of a partition for people: found, decoded and shown in bounded steps
- `spread`: which brokers answer a route, and how their answers become one
- `site`: from an HTTP request to the answer of a route or a page
- `api/`: the routes and pages, and what they show, one module per subject
- `views/`: larger parts of what they show
"""
