"""Schema registries in the API of Confluent's: schemas by their ids, and values that name one."""
