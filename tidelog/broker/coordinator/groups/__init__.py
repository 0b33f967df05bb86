"""Consumer groups of the classic protocol: members, generations, assignments.

- `group`: one group and its members as immutable values, and what can be derived from them
- `joining`: JoinGroup on one group: who may join, and whether the group must rebalance
- `machine`: the groups of one coordinator: a pure machine that takes requests and gives decisions
- `membership`: operations of a group's members between two joins: sync, heartbeat, commit, leave, and expiry
- `messages`, `records`: requests, answers and records as values
- `rebalance`: the rebalance of one group, until a generation with assignments
- `states`: the states of a group of the classic protocol, and the legal transitions between them
"""
