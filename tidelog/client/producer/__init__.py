"""The producer: records become batches, and each is stored once, in order. The rules are pure machines.

- `accumulator`: records that wait to be sent: one queue of batches per partition, within one bound on memory
- `batch`: a batch of records, from `send` until its acknowledgement
- `buffer_memory`: back-pressure: sends wait for memory in the order of their calls
- `config`: the producer's own settings, checked once
- `delivery`: the result of `Producer.send`: an awaitable for one record's metadata that is very cheap to
  create
- `outcomes`: the end of batches: it turns verdicts into outcomes, frees memory, wakes waiters and logs events
- `producer`: the producer: it takes records and returns deliveries, which give the metadata of stored records
- `record_batch`: a batch that the application fills and sends as one batch
- `routes`: chooses the partition of each record of one topic, and finds its queue with one look-up
- `sender`: the sender: it sends batches that are ready to the brokers and handles the answers
- `session`: a producer's session: saved values with which another process continues and stores nothing twice
- `session_keeper`: a producer's session in use: what each partition holds, and which records of a replay to
  skip
- `session_lookup`: finds out which records of a session a partition holds, from its leader's memory or from
  the log
- `state`: the client's half of idempotence: which batch may be sent, with which sequence, and what an answer
  means
- `transaction_state`: the state of a transactional producer: what it may do next, and what each error of a
  coordinator means
- `transactions`: the requests of a transactional producer, and their repetition
- `verdicts`: the verdicts of the producer's state machine about a batch, and what each error code proves
"""
