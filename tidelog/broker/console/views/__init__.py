"""What a broker's services look like at this moment, as plain values, where it is more than one function of a
subject in `api/` says. They only read, and do not depend on HTTP.

- `clients`: the clients that are connected, and quotas
- `condition`: what may be wrong with a broker, gathered
- `group_reset`: the reset of what a group committed: first what it would change, then the change
- `groups`: groups of both protocols, with members, assignment, committed offsets and lag
- `of_cluster`: what answers of several brokers have, and what lists have
- `problems`: what is wrong right now, in words, with the remedy, pure
- `producer_history`: the history of one producer in the log of one partition
- `records`: the records of a topic: pages, searches, what comes
- `share_groups`: share groups: where each share partition is, and what its members hold
"""
