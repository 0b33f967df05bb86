"""Records through the command and back: formats, places to begin and to end, groups, a pace."""

import asyncio
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conformance.commands import PATIENCE_S, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.conformance.registry import registry
from tidelog.client import Producer


def test_json_lines_carry_whole_records_from_topic_to_topic(tidelog: Type, tmp_path: Path) -> None:
    tidelog("topic", "create", "first", "-p", "2")
    tidelog("topic", "create", "second", "-p", "2")
    lines = [
        {"key": "k", "value": "v", "headers": [["a", "1"], ["b", None]], "partition": 1, "timestamp": 1_000},
        {"value": {"nested": [1]}, "partition": 1},
        {"key": "tombstone", "value": None, "partition": 1},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tidelog("produce", "first", "--json", "-f", str(tmp_path / "lines"))[0] == 0
    read = ("--from-beginning", "--json", "--max-messages", "3")
    shown = tidelog("consume", "first", *read)[1]
    records = [json.loads(line) for line in shown.splitlines()]
    assert [(each["key"], each["value"]) for each in records] == [
        ("k", "v"),
        (None, '{"nested":[1]}'),
        ("tombstone", None),
    ]
    assert records[0]["headers"] == [["a", "1"], ["b", None]]
    assert (records[0]["timestamp"], {each["partition"] for each in records}) == (1_000, {1})
    (tmp_path / "again").write_text(shown)
    header = ("--header", "from=first")
    assert tidelog("produce", "second", "--json", "-f", str(tmp_path / "again"), *header)[0] == 0
    again = [json.loads(line) for line in tidelog("consume", "second", *read)[1].splitlines()]
    assert [{**each, "topic": "first", "headers": each["headers"][1:]} for each in again] == records
    assert again[0]["headers"][0] == ["from", "first"]
    assert tidelog("consume", "first", "--from-beginning", "--max-messages", "1", "--headers")[1] == (
        "a=1,b=null\tv\n"
    )


def test_a_line_of_json_that_is_no_record_ends_it(tidelog: Type, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"value": "a"}\nplain\n')
    code, _, error = tidelog("produce", "broken", "--create-topic", "--json", "-f", str(tmp_path / "lines"))
    assert code == 1
    assert "error: line 2 is not JSON" in error
    assert tidelog("produce", "broken", "--json", "--key-separator", ":")[0] == 2


def test_no_more_records_a_second_are_sent_and_read_than_asked_for(tidelog: Type, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * 11)
    tidelog("topic", "create", "slow")
    began = time.monotonic()
    assert tidelog("produce", "slow", "-f", str(tmp_path / "lines"), "--rate", "40")[0] == 0
    assert time.monotonic() - began >= 0.25
    began = time.monotonic()
    read = tidelog("consume", "slow", "--from-beginning", "--max-messages", "11", "--rate", "40")
    assert read == (0, "x\n" * 11, "")
    assert time.monotonic() - began >= 0.25


def test_consume_begins_and_ends_where_it_is_asked_to(broker: RunningBroker, tidelog: Type) -> None:
    tidelog("topic", "create", "a", "-p", "2")
    tidelog("topic", "create", "b")

    async def write() -> None:
        async with Producer(bootstrap_servers=broker.address) as producer:
            for number in range(4):
                await producer.send("a", b"%d" % number, partition=number % 2, timestamp_ms=1_000 * number)
            await producer.send("b", b"x", timestamp_ms=2_500)

    asyncio.run(write())

    def read(*options: str) -> list[str]:
        code, shown, error = tidelog("consume", "a", "b", "--until-end", *options, "--format", r"%t%p%o=%s\n")
        assert (code, error) == (0, "")
        return sorted(shown.splitlines())

    assert read("--from-beginning") == ["a00=0", "a01=2", "a10=1", "a11=3", "b00=x"]
    assert read() == []
    assert read("--tail", "1") == ["a01=2", "a11=3", "b00=x"]
    assert read("--from-timestamp", "2500") == ["a11=3", "b00=x"]
    assert read("--from-timestamp", "1970-01-01T00:00:02") == ["a01=2", "a11=3", "b00=x"]
    assert read("--tail", "9", "--partition", "0") == ["a00=0", "a01=2", "b00=x"]


def test_consume_shows_open_and_aborted_transactions_unless_only_committed_ones_are_asked_for(
    broker: RunningBroker, tidelog: Type
) -> None:
    tidelog("topic", "create", "isolated")
    read = ("consume", "isolated", "--from-beginning", "--until-end")

    async def write() -> None:
        async with Producer(bootstrap_servers=broker.address, transactional_id="isolated") as producer:
            for value, end in (
                (b"kept", producer.commit_transaction),
                (b"aborted", producer.abort_transaction),
            ):
                await producer.begin_transaction()
                await producer.send_and_wait("isolated", value)
                await end()
            await producer.begin_transaction()
            await producer.send_and_wait("isolated", b"open")
            # A command has a loop of its own, so a thread runs it while the transaction stays open.
            assert (await asyncio.to_thread(tidelog, *read))[1] == "kept\naborted\nopen\n"
            committed = await asyncio.to_thread(tidelog, *read, "--isolation", "read_committed")
            assert committed == (0, "kept\n", "")
            await producer.commit_transaction()

    asyncio.run(write())


def test_a_group_goes_on_after_what_was_printed_also_after_ctrl_c(
    broker: RunningBroker, tidelog: Type, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("1\n2\n3\n")
    tidelog("topic", "create", "shared")
    produce = ("produce", "shared", "-f", str(tmp_path / "lines"))
    assert tidelog(*produce)[0] == 0
    read = ("consume", "shared", "--group", "readers", "--from-beginning")
    assert tidelog(*read, "--max-messages", "1")[1] == "1\n"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with typed(*read, "-b", broker.address, **pipes) as reader:
        assert reader.stdout is not None
        assert [next_line(reader), reader.stdout.readline()] == ["2\n", "3\n"]
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=PATIENCE_S) == ("", "")
        assert reader.returncode == 0
    assert tidelog(*read, "--timeout-ms", "1") == (0, "", "")


def test_a_whole_file_is_one_record_with_the_key_that_is_given(tidelog: Type, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"two\nlines\n")
    produce = ("produce", "whole", "--whole", "--key", "name", "-f", str(tmp_path / "file"))
    tidelog("topic", "create", "whole")
    assert tidelog(*produce)[2].startswith("stored 1 record in whole (")
    shown = tidelog("consume", "whole", "--from-beginning", "--until-end", "--format", "%k %K %S %s")
    assert shown == (0, "name 4 10 two\nlines\n", "")


def test_values_of_a_schema_registry_are_printed_as_json_and_others_as_they_are(
    broker: RunningBroker, tidelog: Type
) -> None:
    tidelog("topic", "create", "registered")

    async def write() -> None:
        async with Producer(bootstrap_servers=broker.address) as producer:
            for value in (b"\0\0\0\0\7\x0e", b"text", b"\0\0\0\0\x08x", None):
                await producer.send_and_wait("registered", value, key=b"\0\0\0\0\7\2")

    asyncio.run(write())
    read = ("consume", "registered", "--from-beginning", "--until-end", "--format", r"%k=%s\n")
    with registry({"/schemas/ids/7": {"schema": '"long"'}}) as (url, asked):
        code, shown, error = tidelog(*read, "--schema-registry", url)
        assert (code, shown) == (0, "1=7\n1=text\n1=\0\0\0\0\x08x\n1=\n")
        problem = "the schema registry answers 404 to /schemas/ids/8"
        assert error == f"registered-0 at offset 2 is printed as it is: {problem}\n"
        assert asked == ["/schemas/ids/7", "/schemas/ids/8"]


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("consume t --from-beginning --tail 1", "give --from-beginning or --tail, not both"),
        ("consume t --group g --partition 0", "give --group or --partition, not both"),
        ("consume t --json --headers", "give --json or --headers, not both"),
        ("consume t --timeout-ms 1 --until-end", "give --timeout-ms or --until-end, not both"),
        ("consume t --format %q", "expected one of %s"),
        ("consume t --from-timestamp noon", "expected milliseconds since 1970"),
        ("produce t --whole --json", "give --json or --whole, not both"),
        ("produce t --key k --key-separator :", "give --key or --key-separator, not both"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    tidelog: Type, command: str, refused: str
) -> None:
    code, shown, error = tidelog(*command.split())
    assert (code, shown) == (2, "")
    assert refused in error


@pytest.mark.one_broker("counts brokers")
def test_cluster_info_counts_brokers_topics_and_partitions(broker: RunningBroker, tidelog: Type) -> None:
    tidelog("topic", "create", "counted", "-p", "3")
    shown = json.loads(tidelog("cluster", "info", "--json")[1])
    topics = [json.loads(line)["topic"] for line in tidelog("topic", "list", "--json")[1].splitlines()]
    assert shown["topics"] + shown["internal_topics"] == len(topics)
    assert (shown["partitions_without_leader"], shown["partitions_under_replicated"]) == (0, 0)
    (only,) = shown["brokers"]
    assert (f"{only['host']}:{only['port']}", only["controller"]) == (broker.address, "yes")
    assert only["leads"] == shown["partitions"] >= 3
    text = tidelog("cluster", "info")[1]
    assert text.splitlines()[0].split() == ["cluster", "id", shown["cluster_id"]]
