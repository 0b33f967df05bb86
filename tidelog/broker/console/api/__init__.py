"""The subjects of the console, one module each: the shapes of their answers, and the routes that give them.

- `access`: users and ACLs: who may do what and why, and changes of both
- `clients`: the clients that are connected, and quotas
- `cluster`: which broker this is, the brokers of the cluster, their leaders and in-sync replicas
- `events`: the last events of the broker's log
- `faults`: faults that users order
- `group_reset`: the reset of what a group committed: first what it would change, then the change
- `groups`: groups of all protocols, with members, assignment, committed offsets and lag
- `offsets`: offsets and times of records of partitions, whichever brokers lead them
- `overview`: the broker at one look, and its charts
- `producer_history`: the history of one producer in the log of one partition
- `producers`: what partitions remember of producers, duplicates and refusals
- `records`: the records of a topic: pages, searches, what comes, downloads
- `registry`: the subjects of the schema registry, their versions and differences
- `settings`: settings of topics, groups and this broker
- `share_groups`: share groups: where each share partition is, and what its members hold
- `topics`: topics and their partitions
- `transactions`: transactions, what they hold back, and an end by hand
"""
