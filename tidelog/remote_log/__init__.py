"""Closed segments in an object store: what the objects are, also for who reads them without a broker."""
