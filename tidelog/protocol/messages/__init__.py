"""Every message of the protocol, declared once as a class of annotated fields: types, versions, defaults.

Owns: the parts of Kafka's message definitions that this project uses. `protocol.schema` builds a codec of a
declaration only when it is first used. `protocol.message_types` has all under one name, for annotations.

Invariants: field names are Kafka's own, in snake case and in wire order. A comment says what the name of a
field does not. No module here computes anything or handles bytes.
"""
