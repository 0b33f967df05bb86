"""Groups of the consumer protocol (KIP-848): members, epochs, target and current assignments.

- `assignors`: the assignors of the broker: which member is to read which partitions
- `classic_members`: members of the classic protocol within such a group
- `consumer_protocol`: what classic members write as metadata and read as assignment
- `group`: one group: its members, epochs and assignments
- `heartbeats`: ConsumerGroupHeartbeat: members join, report, get their assignments, leave
- `machine`: the groups of the consumer protocol of one coordinator
- `messages`, `records`: requests, answers and records as values
- `migration`: a group with members changes its protocol
- `reconciliation`: the next step of one member from what it owns to its target assignment
- `regexes`: regular expressions by which members subscribe to topics, in RE2's syntax
- `update`: one operation on a group of the consumer protocol while it is decided
"""
