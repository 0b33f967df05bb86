"""Every message of the protocol, declared once as a class of annotated fields: types, versions, defaults.

- `acls`, `admin`, `client_quotas`, `cluster_admin`, `console`, `consumer_groups`, `fetch`, `groups`,
  `metadata`, `produce`, `share_fetch`, `share_group_state`, `share_groups`, `telemetry`, `topics`,
  `transactions`, `users`: requests and responses
- `group_records`, `share_records`: records in the logs of internal topics; those of transactions are in
  `transactions`
- `structs`: structs that several messages have in common
- `declaration`: what a declaration consists of: the base of its classes, types and options of its fields

Owns: the parts of Kafka's message definitions that this project uses. `protocol.schema` builds a codec of a
declaration only when it is first used. `protocol.message_types` has all under one name, for annotations.

Invariants: field names are Kafka's own, in snake case and in wire order. A comment says what the name of a
field does not. No module here computes anything or handles bytes.
"""
