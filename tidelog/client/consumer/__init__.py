"""The consumer: what it reads next, how it fetches and converts that, and how it takes part in a group.

- `assignment`: the assigned partitions, and which of them is read next
- `config`: the consumer's own settings, checked once
- `consumer`: the consumer: it reads the records of its partitions, in offset order within each
- `conversion`: converts batches as the log stores them into the records that an application reads
- `fetch_answers`: applies an answer to Fetch to the requested partitions
- `fetch_session`: an incremental fetch session with one broker (KIP-227): requests name only changed
  partitions
- `fetcher`: fetches ahead: one long poll per broker for the assigned partitions, within a bound on memory
- `group`: one consumer's group: it carries out the steps of the membership, and commits
- `partition_reader`: one assigned partition: its position, and the bytes that were fetched ahead
- `positions`: positions of newly assigned partitions: where the group committed, else by the reset policy
- `progress`: which of the returned records an application has finished
- `validation`: whether a position lies in the log of a new leader (KIP-320)
- `waiters`: calls that wait until something changes
"""
