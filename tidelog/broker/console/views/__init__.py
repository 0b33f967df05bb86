"""What a broker's services look like at this moment, as plain values. They only read, and do not depend on
HTTP.

- `access`: users and ACLs: who may do what, and why
- `broker`: which broker this is
- `clients`: the clients that are connected, and quotas
- `cluster`: the brokers of the cluster, and who leads and who follows in each partition
- `condition`: what may be wrong with a broker, gathered
- `events`: the last events of the broker's log
- `group_reset`: the reset of what a group committed: first what it would change, then the change
- `groups`: groups of both protocols, with members, assignment, committed offsets and lag
- `of_cluster`: what answers of several brokers have, and what lists have
- `overview`: a broker at one look
- `problems`: what is wrong right now, in words, with the remedy, pure
- `producer_history`: the history of one producer in the log of one partition
- `producers`: what partitions remember of producers, and what happened to their batches
- `records`: the records of a topic: pages, searches, what comes
- `share_groups`: share groups: where each share partition is, and what its members hold
- `topics`: topics and their partitions
- `transactions`: transactions by their condition, and what they hold back
"""
