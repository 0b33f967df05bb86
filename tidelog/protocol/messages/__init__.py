"""Every message of the protocol, declared once as plain data: names, types, version ranges, defaults.

- `acls`, `admin`, `client_quotas`, `cluster_admin`, `console`, `consumer_groups`, `fetch`, `group_admin`,
  `group_membership`, `group_offsets`, `groups`, `metadata`, `produce`, `sasl`, `share_fetch`,
  `share_group_state`, `share_groups`, `telemetry`, `topics`, `transaction_markers`, `transactions`,
  `users`: requests and responses
- `consumer_group_records`, `group_records`, `offset_records`, `share_group_records`, `share_state_records`,
  `transaction_records`: records in the logs of internal topics
- `consumer_protocol`: what consumers of a classic group write into JoinGroup and SyncGroup
- `declaration`: the types of a declaration: fields with version ranges, and messages that consist of them

Owns: the parts of Kafka's message definitions that this project uses. `protocol.schema` builds a codec of a
declaration only when it is first used. `protocol/message_types.pyi` is made from them: types for mypy.

Invariants: field names are Kafka's own, in snake case and in wire order. No module here computes anything or
handles bytes.
"""
