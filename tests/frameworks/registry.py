"""Apicurio Registry, a schema registry that keeps its schemas in topics, as one process; orders in Avro."""

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.targets.process import free_port
from tests.frameworks.java import registry_command
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog import Producer
from tidelog.serializers import AvroSerializer, SchemaRegistry


@contextmanager
def running_registry(folder: Path, bootstrap_servers: str) -> Iterator[str]:
    """Its address for clients of Confluent's registry. It is stopped when the block ends."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    settings = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap_servers,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_ENABLED": "false",
    }
    folder.mkdir()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            registry_command(), cwd=folder, env={**os.environ, **settings}, stdout=output, stderr=output
        )

    def answers() -> bool:
        assert process.poll() is None, (folder / "output").read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{address}/subjects", timeout=DEADLINE_SECONDS):
                return True
        except (OSError, urllib.error.URLError):
            return False

    try:
        wait_for(answers, "the registry", DEADLINE_SECONDS)
        yield address
        process.terminate()
        process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
        process.wait()


async def write_orders(servers: str, registry: str, field_count: int) -> None:
    """Twenty orders by Tidelog's own client, the first of number 20 * field_count. Their schema has so many
    optional fields."""
    names = [f"field{n}" for n in range(field_count)]
    optional = [{"name": name, "type": ["null", "string"], "default": None} for name in names]
    schema = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}, *optional]}
    serialize = await AvroSerializer.register(SchemaRegistry(registry), "avro-orders-value", schema)
    async with Producer(bootstrap_servers=servers, value_serializer=serialize) as producer:
        for number in range(20 * field_count, 20 * field_count + 20):
            order = {"number": number, **dict.fromkeys(names, str(number))}
            await producer.send_and_wait("avro-orders", order)
