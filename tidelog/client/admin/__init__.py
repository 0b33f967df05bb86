"""Administration: topics, groups, transactions, users, ACLs, quotas and configurations.

- `acls`: administration of access control entries: who may do what
- `admin`: administration: topics, configurations, producers, the cluster itself
- `groups`: administration of consumer groups: their list, their members, their committed offsets
- `quotas`: administration of quotas: of users, client ids and addresses
- `reassignments`: administration of reassignments: on which brokers the replicas of partitions are
- `requests`: the requests of an administrator: which broker each goes to, and how long it is repeated
- `transactions`: administration of transactions: their list, their state, and an end that an operator decides
- `types`: the values that `Admin` takes and returns
- `users`: administration of users: their passwords for SCRAM, which a broker stores salted and hashed
"""
