"""The subjects of the console, one module each: what it shows, as plain values, its routes and its pages.

- `access`: users and ACLs: who may do what and why, and changes of both
- `broker`: which broker this is
- `clients`: the clients that are connected, and quotas
- `cluster`: the brokers of the cluster, their leaders and in-sync replicas
- `events`: the last events of the broker's log
- `faults`: faults that users order
- `groups`: groups: their list, one of them with its lag, and the reset of what it committed
- `offsets`: offsets and times of records of partitions that other brokers lead
- `overview`: the broker at one look, and its charts
- `producers`: what partitions remember of producers, duplicates, refusals, and one producer's history
- `records`: the records of a topic: pages, searches, what comes, downloads
- `registry`: the subjects of the schema registry, their versions and differences
- `search`: everything that has a text in its name
- `settings`: settings of topics, groups and this broker
- `topics`: topics and their partitions
- `transactions`: transactions, what they hold back, and an end by hand
"""
