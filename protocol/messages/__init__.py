"""Every message of the protocol, declared once as plain data: names, types, version ranges, defaults.

Owns: the parts of Kafka's message definitions that this project uses. `protocol.schema` builds a codec of a
declaration only when it is first used.

Invariants: field names are Kafka's own, in snake case and in wire order. No module here imports construct,
computes anything or handles bytes.
"""
