"""Every message of the protocol, declared once as plain data: names, types, version ranges, defaults.

Owns: the facts of Kafka's message definitions that this project uses. A declaration costs nothing until
`protocol.schema` is asked for the codec of one (message, version).

Invariants: field names are Kafka's own, in snake case and in wire order; no module here imports construct,
computes anything or knows about bytes.
"""
