"""This broker as a client of the other brokers of its cluster.

- `connection_settings`: how this broker connects to others: the inter-broker listener, its security and user
- `connections`: the connections to other brokers. It imports the client's side of the wire
- `peers`: requests to other brokers by their ids; connected at the first one

A cluster of one broker imports `peers` only, and opens nothing.
"""
