"""A client's side of the wire: connections to brokers, their security and settings, the view of a cluster."""
