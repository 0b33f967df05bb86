"""Membership in consumer groups: pure machine, assignors and wire values, and the part that does I/O."""
