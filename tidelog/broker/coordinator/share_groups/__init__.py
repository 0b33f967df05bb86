"""Share groups (KIP-932): members, epochs, assignments, and which partitions have a state.

- `assignor`: which member is to fetch which partitions
- `group`: one group: its members, epochs, assignments, and the partitions with a state
- `machine`: the share groups of one coordinator
- `records`: their records, as values and in Kafka's encodings
"""
