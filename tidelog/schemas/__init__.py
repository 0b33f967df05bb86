"""Schema registries in the API of Confluent's: schemas by their ids, and values that name one.

- `avro`: Avro schemas, checked so that no value of theirs costs unbounded memory
- `decoded_values`: values as JSON text, by the schemas of one registry, for the console and the commands
- `protobuf`: Protobuf schemas and messages
- `registry`: the registry's API, and the format of a value that names its schema
"""
