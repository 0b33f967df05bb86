"""What all writes share.

- `rows`: the rows of a write: converts Spark's Arrow batches to columns that can be encoded
- `sending`: a client's producer for a Spark task: its event loop in a thread, whole batches in, failures out
"""
