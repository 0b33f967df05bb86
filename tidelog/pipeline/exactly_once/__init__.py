"""delivery=exactly_once: the rows of any query, stored once.

- `checkpoint`: what the checkpoint of Spark says of a batch
- `decision`: what the broker keeps of a batch, pure
- `foreach_batch`: delivery=exactly_once for users of `foreachBatch`, as one call
- `settling`: the driver's requests: one durable decision, then the end of each transaction
- `task`: one attempt of a task: its rows go into a transaction, which is prepared and left open
- `writer`: why it is exact: each row of any DataFrame is stored once
"""
