"""The producer: records become batches, and each is stored once, in order. The rules are pure machines."""
