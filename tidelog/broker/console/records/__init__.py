"""The records of a partition for people: found, decoded and shown in bounded steps."""
