"""Share groups (KIP-932) on the broker that leads a partition: which member holds which records.

- `dead_letters`: writes what no member accepted to the group's topic for it
- `held`: one share partition in memory: its locks' timer, its writes in order, its dead letters
- `log_reader`: reads a log from memory, in a thread or from remote storage
- `parts`: the parts of a broker that this package uses
- `partitions`: the share partitions of this broker
- `reading`: the batches of a log that a share group may get
- `sessions`: share sessions: which partitions a member fetches, pure
- `share`: what a broker has for share groups, made with their first use
- `share_partition`: the states of one partition's records for one group, pure
- `states`: reads and writes states where their coordinator is, on this broker or another
"""
