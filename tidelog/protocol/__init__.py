"""Kafka's protocol: bytes to values and back. No I/O, no clock, no event loop.

- `acls`: access control entries (ACLs): who may do what with which resource, as values that both sides share
- `codecs`: the codec of one message in one version, which is made when it is first used
- `compression`: compression codecs, with a limit on the decompressed size
- `coordinator_records`: keys and values of coordinators' records in the logs of internal topics
- `emitter`: writes the functions that decode and encode a message in a version, as Python source
- `errors`: the error table of the Kafka protocol, and the two exceptions of this project for the wire
- `framing`: frames and headers: it splits received bytes into frames and headers, and encodes them
- `json_lines`: a record as one line of JSON
- `message_types`: the declarations of all messages under one name, for type checkers
- `murmur2`: the hash by which a key gets its partition
- `primitives`: what emitted codecs call: lengths, strings, bytes, tagged fields, and all their errors
- `quotas`: quotas as Kafka names them: who they hold for, and which there are
- `schema`: the table of APIs, and one cached codec per message and version
- `scram`: the keys of SCRAM, for both sides of the wire: what a password becomes, and what is stored of it
- `sequences`: sequence arithmetic of the idempotent producer: after 2147483647 comes 0
- `settings`: how a table of settings is declared, and the errors for wrong values
- `steps`: long work in steps, so that other requests run between them
- `types`: types for Kafka's terms, and the values that mean "none" on the wire
- `values`: the values of a decoded struct: an object with a slot per declared field, which is a mapping too
- `varint`: unsigned varints in a buffer
- `hot/`: Produce and Fetch, the two messages that carry records, as NamedTuples over memoryviews
- `messages/`: every message, declared once as a class of annotated fields
- `records/`: record batches, version 2: bytes to header views and records, and back
"""
