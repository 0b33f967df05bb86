"""Kafka Streams, Kafka Connect, Kafka's command line tools and a schema registry, as `make frameworks` runs
them.

They are not in `make test`, because they come from Maven Central. Where it is not reached, every test fails
and says so.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.targets.kafka import Kafka
from bench.wire import HOST
from tests.deadline import deadline
from tests.frameworks import judgement
from tests.frameworks.connect import ConnectTrial
from tests.frameworks.java import TERMINATED, compile_programs, fetch_jars, java
from tests.frameworks.kafka_reference import FILE, read_kafka
from tests.frameworks.registry import running_registry, write_orders
from tests.frameworks.trial import Framework, Outcome, Trial, bill_orders
from tests.frameworks.workers import PROGRAMS, environment
from tests.several.served import WAYS
from tests.spark.brokers import running_broker, running_cluster
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS
from tidelog import Admin, Consumer, Producer, TopicPartition
from tidelog.client import NewTopic
from tidelog.serializers import AvroDeserializer, SchemaRegistry

_TOOLS = "org.apache.kafka.tools"
_TOPOLOGIES = {"streams": "at_least_once", "streams-exactly-once": "exactly_once_v2"}
# Spark starts in seconds; a busy machine takes minutes.
_SPARK_SECONDS = 600.0
_TRIALS_SECONDS = 3600.0
_NAMES = (*_TOPOLOGIES, "console", "connect-sink")


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    fetch_jars()
    compile_programs()


@pytest.fixture(scope="module", params=WAYS)
def outcomes(
    jars: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, Outcome]:
    at_least_once, exactly_once = (
        Framework(
            name,
            java("Billing", name, guarantee),
            counts_orders=True,
            exactly_once=guarantee == "exactly_once_v2",
            exit_code=TERMINATED,
        )
        for name, guarantee in _TOPOLOGIES.items()
    )
    console = Framework(
        "console",
        java(
            f"{_TOOLS}.consumer.ConsoleConsumer",
            *("--bootstrap-server", "$KAFKA", "--topic", "console-orders", "--group", "console"),
            *("--from-beginning", "--command-property", "auto.commit.interval.ms=500"),
        ),
        sender=java(f"{_TOOLS}.ConsoleProducer", "--bootstrap-server", "$KAFKA", "--topic", "console-orders"),
        prints_bills=r"^(\d+)$",
        exit_code=TERMINATED,
    )
    trials = (
        partial(Trial, at_least_once),
        partial(Trial, exactly_once),
        partial(Trial, console),
        ConnectTrial,
    )
    with deadline("the trials", _TRIALS_SECONDS):
        return asyncio.run(bill_orders(tmp_path_factory.mktemp("frameworks"), *trials, way=request.param))


@pytest.fixture(params=_NAMES)
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Outcome]) -> Outcome:
    return outcomes[request.param]


def test_every_order_is_billed(outcome: Outcome) -> None:
    judgement.check_nothing_is_lost(outcome)


def test_only_orders_that_were_not_committed_are_billed_twice(outcome: Outcome) -> None:
    judgement.check_only_what_was_not_committed_is_billed_twice(outcome)


def test_a_worker_that_is_stopped_has_committed_all_that_it_billed(outcome: Outcome) -> None:
    judgement.check_stopped_workers_have_committed_all(outcome)


@pytest.mark.parametrize("name", _TOPOLOGIES)
def test_the_state_of_a_topology_moves_with_its_partitions_and_loses_nothing(
    outcomes: dict[str, Outcome], name: str
) -> None:
    judgement.check_the_state_is_complete(outcomes[name])


@pytest.mark.parametrize("way", WAYS)
def test_the_command_line_tools_create_topics_and_administer_groups(tmp_path: Path, way: str) -> None:
    with running_cluster(way, tmp_path) as broker:

        def tool(name: str, *arguments: str, lines: str = "") -> list[list[str]]:
            """The words of each line that a tool prints."""
            command = java(f"{_TOOLS}.{name}", "--bootstrap-server", broker.bootstrap_servers, *arguments)
            done = subprocess.run(
                command, input=lines, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return [line.split() for line in done.stdout.splitlines() if line]

        def groups(*arguments: str) -> list[list[str]]:
            return tool("consumer.group.ConsumerGroupCommand", *arguments)

        def offsets() -> list[tuple[str, ...]]:
            """Committed offset, end and lag of each partition."""
            rows = groups("--describe", "--group", "billing")
            return [tuple(row[3:6]) for row in rows if row[:2] == ["billing", "orders"]]

        tool("TopicCommand", "--create", "--topic", "orders", "--config", "retention.ms=3600000")
        assert ["orders"] in tool("TopicCommand", "--list")
        tool("ConsoleProducer", "--topic", "orders", lines="".join(f"{n}\n" for n in range(100)))
        read = ("--topic", "orders", "--group", "billing", "--from-beginning", "--max-messages", "40")
        assert tool("consumer.ConsoleConsumer", *read)[:40] == [[str(number)] for number in range(40)]
        assert offsets() == [("40", "100", "60")]
        assert ["billing"] in groups("--list")
        earliest = ("--reset-offsets", "--topic", "orders", "--to-earliest", "--execute")
        assert ["billing", "orders", "0", "0"] in groups("--group", "billing", *earliest)
        assert offsets() == [("0", "100", "100")]
        groups("--delete", "--group", "billing")
        assert groups("--list") == []


def test_kafka_configs_changes_settings_of_groups_and_levels_of_loggers(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:

        def configs(*arguments: str) -> str:
            command = java(
                "org.apache.kafka.tools.ConfigCommand",
                "--bootstrap-server",
                broker.bootstrap_servers,
                *arguments,
            )
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        for kind, name, change, key in (
            ("groups", "billing", "consumer.session.timeout.ms=50000", "consumer.session.timeout.ms"),
            ("client-metrics", "all", "interval.ms=10000", "interval.ms"),
            ("broker-loggers", "1", "tidelog.broker.replicas=WARN", "tidelog.broker.replicas"),
        ):
            entity = ("--entity-type", kind, "--entity-name", name)
            configs("--alter", *entity, "--add-config", change)
            assert change in configs("--describe", *entity)
            configs("--alter", *entity, "--delete-config", key)
            assert change not in configs("--describe", *entity)


def test_a_schema_registry_keeps_the_schemas_of_avro_over_a_kill_of_the_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers

        def avro(registry: str, *arguments: object) -> list[str]:
            command = [environment() / "python", PROGRAMS / "avro_orders.py", *map(str, arguments)]
            settings = {**os.environ, "KAFKA": servers, "REGISTRY": registry}
            done = subprocess.run(
                command, env=settings, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        with running_registry(tmp_path / "first", servers) as registry:
            avro(registry, "write", 0, 0, 20)
            avro(registry, "write", 1, 20, 40)
            broker.run(broker.process.kill_9())
            broker.run(broker.process.start())
            asyncio.run(write_orders(servers, registry, 2))
        # A new registry knows only what the broker has stored.
        with running_registry(tmp_path / "second", servers) as registry:
            orders = [json.loads(line) for line in avro(registry, "read", 60)]
            orders.sort(key=lambda order: order["number"])
            assert asyncio.run(read_orders(servers, registry, 60)) == orders
    expected = [
        {"number": number, **{f"field{n}": str(number) for n in range(number // 20)}} for number in range(60)
    ]
    assert orders == expected


async def read_orders(servers: str, registry: str, count: int) -> list[Any]:
    """So many orders, by Tidelog's own client, in their order."""
    deserialize = AvroDeserializer(SchemaRegistry(registry))
    async with Consumer(
        "avro-orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=deserialize,
    ) as consumer:
        read = [(await consumer.getone()).value for _ in range(count)]
    return sorted(read, key=lambda order: int(order["number"]))


def test_the_page_on_compatibility_compares_with_what_a_running_kafka_has(tmp_path: Path) -> None:
    """docs/kafka.json is out of date? Make it again: see `kafka_reference`."""
    assert read_kafka(tmp_path / "kafka") == json.loads(FILE.read_text())


def test_a_topic_moves_from_kafka_with_its_history_and_with_what_groups_committed(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, Kafka(tmp_path / "kafka") as kafka:
        asyncio.run(_move(f"{HOST}:{kafka.port}", broker.bootstrap_servers, tmp_path / "mirror"))


async def _move(servers: str, target: str, checkpoint: Path) -> None:
    first = time.time_ns() // 1_000_000
    async with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        await admin.create_topics([NewTopic("orders", 1)])
        for number in range(100):
            _ = await producer.send(
                "orders", b"%d" % number, key=b"k", timestamp_ms=first + number, headers=[("h", b"x")]
            )
        await producer.flush()
        await admin.groups.commit("billing", {TopicPartition("orders", 0): 60})
    tidelog = [sys.executable, "-m", "tidelog"]
    mirror = ["pipeline", "mirror", "orders", "-b", servers, "--checkpoint", str(checkpoint)]
    settings = {"FROM": servers, "TO": target, "PYTHONPATH": str(ROOT)}
    for command in (
        [*tidelog, *mirror, "--to-bootstrap-servers", target],
        [sys.executable, str(PROGRAMS / "carry_groups.py"), "billing"],
    ):
        done = await asyncio.to_thread(
            subprocess.run, command, env=os.environ | settings, timeout=_SPARK_SECONDS, check=False
        )
        assert done.returncode == 0
    async with Consumer(
        "orders", bootstrap_servers=target, group_id="billing", auto_offset_reset="none"
    ) as consumer:
        left = [await asyncio.wait_for(consumer.getone(), DEADLINE_SECONDS) for _ in range(60, 100)]
    assert [(each.offset, each.value, each.key, each.timestamp, each.headers[0]) for each in left] == [
        (number, b"%d" % number, b"k", first + number, ("h", b"x")) for number in range(60, 100)
    ]
