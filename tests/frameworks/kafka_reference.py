"""What a running Kafka 4.4 has: its APIs with their versions, and its settings with their defaults.

`docs/kafka.json` is what this file prints, and `docs/compatibility.md` is made from it:

    python -m tests.frameworks.kafka_reference > docs/kafka.json

`make frameworks` compares the file with a running Kafka. Both need Java and Maven Central.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, get_field, launch_gateway

from bench.targets.kafka import BROKER, Kafka
from bench.targets.maven import fetch_program
from bench.wire import Wire
from tests.tidy.house import ROOT
from tidelog.pipeline.spark.java import find_java
from tidelog.protocol.schema import ApiKey

FILE = ROOT / "docs" / "kafka.json"
_TOPIC = "orders"
_RESOURCES = {
    "broker": (4, "1"),
    "topic": (2, _TOPIC),
    "group": (32, "billing"),
    "client-metrics": (16, "all"),
}
_CLIENTS = {"producer": "ProducerConfig", "consumer": "ConsumerConfig", "admin": "AdminClientConfig"}
_DEFAULT_CONFIG = 5


def read_kafka(folder: Path) -> dict[str, Any]:
    """What a Kafka in this folder says of itself, and the classes of its clients."""
    with (
        Kafka(folder) as kafka,
        Wire(kafka.port) as broker,
        Wire(kafka.controller) as controllers,
        _jvm() as jvm,
    ):
        broker.create_topic(_TOPIC)
        return {
            "version": BROKER.rpartition(":")[2],
            "apis": _apis(jvm, _versions(broker), _versions(controllers)),
            "settings": {name: _settings(broker, *named) for name, named in _RESOURCES.items()}
            | {
                name: dict.fromkeys(sorted(getattr(getattr(jvm.clients, name), table).configNames()))
                for name, table in _CLIENTS.items()
            },
        }


def _versions(wire: Wire) -> dict[int, list[int]]:
    asked = {"client_software_name": "tidelog", "client_software_version": "1"}
    answer = wire.ask(ApiKey.API_VERSIONS, 3, asked)
    return {each.api_key: [each.min_version, each.max_version] for each in answer.api_keys}


def _apis(
    jvm: Any, of_broker: dict[int, list[int]], of_controllers: dict[int, list[int]]
) -> list[dict[str, Any]]:
    """Those that Kafka still has. A broker without a receiver of telemetry does not advertise its APIs."""
    apis = []
    for each in jvm.common.protocol.ApiKeys.values():
        key = get_field(each, "id")
        versions = of_broker.get(key, [each.oldestVersion(), each.latestVersion()])
        if versions[0] <= versions[1]:
            only = key in of_controllers and key not in of_broker
            name, (first, last) = get_field(each, "name"), versions
            apis.append({"key": key, "name": name, "first": first, "last": last, "only_controllers": only})
    return apis


def _settings(wire: Wire, resource_type: int, name: str) -> dict[str, str | None]:
    """Setting -> its default; None for none, or a secret."""
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": True}
    [result] = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
    assert not result.error_code, result.error_message
    return {
        each.name: next((one.value for one in each.synonyms if one.source == _DEFAULT_CONFIG), None)
        for each in sorted(result.configs, key=lambda each: each.name)
    }


@contextmanager
def _jvm() -> Iterator[Any]:
    """The package org.apache.kafka of this release, in a JVM."""
    port, process = launch_gateway(
        classpath=":".join(map(str, fetch_program(BROKER))),
        java_path=str(find_java().home / "bin" / "java"),
        die_on_exit=True,
        return_proc=True,
    )
    try:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        yield gateway.jvm.org.apache.kafka
        gateway.shutdown()
    finally:
        process.kill()
        process.wait()


def as_text(facts: dict[str, Any]) -> str:
    """As the file has it: an API, and a setting, on each line."""
    apis = ",\n".join(f"  {json.dumps(each)}" for each in facts["apis"])
    text = json.dumps({**facts, "apis": []}, indent=1)
    return text.replace('"apis": []', f'"apis": [\n{apis}\n ]') + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(as_text(read_kafka(Path(folder) / "kafka")))
