"""The states of share partitions (KIP-932): where each group is in each partition, pure.

- `machine`: the states of one partition of `__share_group_state`
- `records`: snapshots and updates of them, in Kafka's encodings
- `state`: one state, and what an update does to it
"""
