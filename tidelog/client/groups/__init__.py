"""Membership in consumer groups: pure machine, assignors and wire values, and the part that does I/O.

- `assignors`: the assignors: how the leader of a classic group divides the partitions among the members
- `consumer_membership`: a consumer's membership in a group of the consumer protocol
- `consumer_protocol`: what members of a classic group send to their leader, and what it assigns
- `coordinator`: requests to the coordinator of one group
- `heartbeats`: the heartbeats of one member
- `listener`: callbacks of an application around a rebalance
- `member`: what members of groups have in common: the tasks that carry out the steps of a membership
- `membership`: a consumer's membership in a classic group: which request or callback comes next
- `offsets`: the committed offsets of a group, as one consumer reads and writes them
- `steps`: what both kinds of membership share
- `sticky`: the sticky assignment: balanced, and each member keeps as much as the balance allows
- `subscription`: which topics a consumer subscribed to: by their names, or by a pattern
"""
