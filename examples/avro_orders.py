"""Avro with a schema registry. `python avro_orders.py write FIELDS FIRST LAST` sends orders, whose schema has
so many optional fields. `python avro_orders.py read COUNT` prints orders.
"""

import json
import os
import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

TOPIC = "avro-orders"
registry = SchemaRegistryClient({"url": os.environ["REGISTRY"]})
context = SerializationContext(TOPIC, MessageField.VALUE)


def schema(field_count: int) -> str:
    optional = [
        {"name": f"field{n}", "type": ["null", "string"], "default": None} for n in range(field_count)
    ]
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}, *optional]}
    )


def write(field_count: int, first: int, last: int) -> None:
    serialize = AvroSerializer(registry, schema(field_count))
    producer = Producer({"bootstrap.servers": os.environ["KAFKA"], "enable.idempotence": True})
    for number in range(first, last):
        fields = {f"field{n}": str(number) for n in range(field_count)}
        producer.produce(TOPIC, serialize({"number": number, **fields}, context))
    assert producer.flush(60) == 0


def read(count: int) -> None:
    deserialize = AvroDeserializer(registry)
    settings = {"bootstrap.servers": os.environ["KAFKA"], "group.id": "avro", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    for message in consumer.consume(count, timeout=60):
        print(json.dumps(deserialize(message.value(), context)))
    consumer.close()


if __name__ == "__main__":
    command, *numbers = sys.argv[1:]
    {"write": write, "read": read}[command](*map(int, numbers))
