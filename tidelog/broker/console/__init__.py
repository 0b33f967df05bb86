"""The console: the pages of a broker under /console and its JSON API under /api/v1, on the HTTP port.

Nothing here is imported before the first visitor. A page shows what routes of the API answer, by a template
of `templates/`; what browsers load is in `static/`, with the libraries of others and their licences in
`static/vendor/`.

- `api/`: the routes, and what they answer, one module per subject
- `caller`: who asks: what they may do, and requests to the broker's handlers in their name
- `condition`: what may be wrong with a broker, gathered
- `live`: answers that go on: events for pages that are open, and lines for downloads
- `openapi`: the description of the API, made of the table of routes
- `others`: the way to the consoles of other brokers, and back
- `problems`: what is wrong right now, in words, with the remedy, pure
- `records/`: the records of a partition for people: found, decoded and shown in bounded steps
- `rendering`: pages from templates; names and records become text, whatever they contain
- `request_rates`: the rate of requests between two looks at a connection
- `route`: what a route of the API and a page are, and which brokers answer a route
- `routes`: the table of all routes and pages
- `shapes`: the shapes of parameters and answers that subjects share
- `site`: from an HTTP request to the answer of a route or a page
"""
