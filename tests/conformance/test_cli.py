"""The command against a real broker: what a person types, and what they see."""

import json
import os
import re
import select
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.commands import PATIENCE_S, TIDELOG, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.cli import producers


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], str]:
    """A file with these lines, by its path."""

    def write(text: str) -> str:
        (tmp_path / "lines").write_text(text)
        return str(tmp_path / "lines")

    return write


@pytest.mark.one_broker("names the leader")
def test_a_topic_from_creation_to_deletion(tidelog: Type) -> None:
    created = tidelog("topic", "create", "birth", "-p", "2", "--config", "retention.ms=3600000")
    assert created == (0, "created birth (2 partitions)\n", "")
    assert "birth" in tidelog("topic", "list")[1].splitlines()
    code, shown, _ = tidelog("topic", "describe", "birth")
    assert code == 0
    heading, columns, *rows = shown.splitlines()
    assert re.fullmatch(r"birth  id [0-9a-f-]{36}  2 partitions  retention\.ms=3600000", heading)
    assert columns.split("  ")[0] == "PARTITION"
    assert [row.split() for row in rows] == [
        ["0", "1", "0", "1", "1", "0", "0"],
        ["1", "1", "0", "1", "1", "0", "0"],
    ]
    assert '{"topic": "birth"}' in tidelog("topic", "list", "--json")[1].splitlines()
    facts = json.loads(tidelog("topic", "describe", "birth", "--json")[1])
    assert facts["settings"] == {"retention.ms": "3600000"}
    assert facts["partitions"][1]["next_offset"] == 0
    assert tidelog("topic", "delete", "birth") == (0, "deleted birth\n", "")
    assert "birth" not in tidelog("topic", "list")[1].splitlines()


def test_a_brokers_settings_are_changed_without_a_restart(tidelog: Type) -> None:
    def shown(*options: str) -> dict[str, list[str]]:
        _, *rows = tidelog("broker", "config", *options)[1].splitlines()
        return {name: rest for _, name, *rest in map(str.split, rows)}

    assert shown()["num.partitions"] == ["1", "default", "yes"]
    change = ("broker", "config", "--set", "num.partitions=4", "--set", "log.retention.ms=777")
    assert tidelog(*change) == (
        0,
        "set num.partitions=4 for all brokers\nset log.retention.ms=777 for all brokers\n",
        "",
    )
    assert tidelog("broker", "config", "--broker", "1", "--set", "log.retention.ms=888")[0] == 0
    assert tidelog("topic", "create", "configured")[1] == "created configured (4 partitions)\n"
    found = shown("--broker", "1")
    assert found["num.partitions"] == ["4", "all", "brokers", "yes"]
    assert found["log.retention.ms"] == ["888", "this", "broker", "yes"]
    code, _, error = tidelog("broker", "config", "--broker", "1", "--set", "node.id=2")
    assert code == 1
    assert "node.id" in error
    for options in (["--delete", "num.partitions"], ["--delete", "log.retention.ms"]):
        assert tidelog("broker", "config", *options)[0] == 0
    assert tidelog("broker", "config", "--broker", "1", "--delete", "log.retention.ms")[1] == (
        "deleted log.retention.ms of broker 1\n"
    )
    assert shown()["num.partitions"] == ["1", "default", "yes"]


def test_creating_a_topic_twice_is_refused_unless_told_so(tidelog: Type) -> None:
    assert tidelog("topic", "create", "twice")[0] == 0
    code, _, error = tidelog("topic", "create", "twice")
    assert code == 1
    assert "TOPIC_ALREADY_EXISTS" in error
    assert tidelog("topic", "create", "twice", "--if-not-exists") == (0, "exists twice\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "describe", "nowhere"),
        ("topic", "delete", "nowhere"),
        ("producers", "nowhere"),
        ("consume", "nowhere", "--from-beginning"),
    ],
    ids=" ".join,
)
def test_an_unknown_topic_is_one_line_and_is_not_created(tidelog: Type, command: tuple[str, ...]) -> None:
    code, shown, error = tidelog(*command)
    assert (code, shown) == (1, "")
    assert re.fullmatch(r"error: .*nowhere.*\n", error)
    assert "nowhere" not in tidelog("topic", "list")[1]


def test_records_for_a_topic_that_does_not_exist_are_refused_unless_it_is_to_be_created(
    tidelog: Type, lines: Callable[[str], str]
) -> None:
    tidelog("topic", "create", "payments")
    file = lines("x\n")
    code, _, error = tidelog("produce", "paymnets", "-f", file)
    assert code == 1
    assert "there is no topic paymnets (did you mean payments?)" in error
    assert "give --create-topic" in error
    assert "paymnets" not in tidelog("topic", "list")[1]
    for expected in ("created new\nstored 1 record in new (", "stored 1 record in new ("):
        code, shown, report = tidelog("produce", "new", "--create-topic", "-f", file)
        assert (code, shown) == (0, "")
        assert report.startswith(expected)


def test_a_job_whose_topic_is_nowhere_says_so_before_spark_starts(
    broker: RunningBroker, tidelog: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.pipeline.spark.spark_session.start_session", None)  # A call would fail.
    servers = ("-b", broker.address)
    for command in (("audit",), ("stats",), ("archive", "--path", str(tmp_path / "archive"))):
        code, shown, error = tidelog("pipeline", *command, "nowhere", *servers)
        assert (code, shown) == (1, "")
        assert re.fullmatch(r"error: .*nowhere.*\n", error)
    assert "nowhere" not in tidelog("topic", "list")[1]


def test_lines_come_back_as_they_were_sent(tidelog: Type, lines: Callable[[str], str]) -> None:
    file = lines("one\n\nthrée\nlast without a line feed")
    tidelog("topic", "create", "lines")
    code, shown, report = tidelog("produce", "lines", "--file", file, "--compression", "zstd")
    assert (code, shown) == (0, "")
    assert report.startswith("stored 4 records in lines (")
    assert "offsets 0 to 4 (the next), not 5" in tidelog("consume", "lines", "--offset", "5")[2]
    read = tidelog("consume", "lines", "--from-beginning", "--max-messages", "4")
    assert read == (0, "one\n\nthrée\nlast without a line feed\n", "")
    assert tidelog("consume", "lines", "--offset", "2", "--max-messages", "1")[1] == "thrée\n"
    assert tidelog("topic", "delete-records", "lines", "--before-offset", "2")[1] == (
        "lines-0 begins at offset 2\n"
    )
    assert tidelog("consume", "lines", "--from-beginning", "--max-messages", "1")[1] == "thrée\n"
    assert "2 to 4 (the next), not 1" in tidelog("consume", "lines", "--offset", "1")[2]
    assert tidelog("topic", "delete-records", "lines", "--all")[1] == "lines-0 begins at offset 4\n"
    assert tidelog("consume", "lines", "--max-messages", "0") == (0, "", "")
    assert tidelog("consume", "lines", "--timeout-ms", "100") == (0, "", "")


def test_keys_partitions_and_headers(tidelog: Type, lines: Callable[[str], str]) -> None:
    tidelog("topic", "create", "keyed", "-p", "3")
    file = lines("a\t1\na\t2\nb\t3\n")
    produced = tidelog(
        "produce", "keyed", "-f", file, "--key-separator", r"\t", "--partition", "2", "--header", "from=me"
    )
    assert produced[0] == 0
    read = ("consume", "keyed", "--from-beginning", "--max-messages", "3", "--partition", "2")
    assert tidelog(*read, "--key-separator", "=")[1] == "a=1\na=2\nb=3\n"
    records = [json.loads(line) for line in tidelog(*read, "--json")[1].splitlines()]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, "a", "1"),
        (1, "a", "2"),
        (2, "b", "3"),
    ]
    assert records[0]["headers"] == [["from", "me"]]
    assert tidelog("consume", "keyed", "--partition", "3")[2] == (
        "error: topic 'keyed' has no partition 3: it has 0 to 2\n"
    )


def test_a_line_without_its_key_is_named(tidelog: Type, lines: Callable[[str], str]) -> None:
    tidelog("topic", "create", "unkeyed")
    code, _, error = tidelog("produce", "unkeyed", "-f", lines("k:v\nv\n"), "--key-separator", ":")
    assert (code, error) == (
        1,
        "error: line 2 does not contain the key separator ':' (records stored before it: 1)\n",
    )


def test_what_a_foreign_client_left_out_is_shown_as_null(broker: RunningBroker, tidelog: Type) -> None:
    peer = ConfluentKafka()
    peer.create_topics(broker.address, {"nulls": 1})
    peer.write(
        broker.address, {"nulls": ("none", [Message(0, 1000, b"k", None), Message(0, 1000, None, b"v")])}
    )
    read = ("consume", "nulls", "--from-beginning", "--max-messages", "2")
    assert tidelog(*read, "--key-separator", "|")[1] == "k|null\nnull|v\n"
    assert [json.loads(line)["key"] for line in tidelog(*read, "--json")[1].splitlines()] == ["k", None]


@pytest.mark.one_broker("reads the data folder")
def test_producers_are_listed_with_their_last_sequence(
    tidelog: Type, lines: Callable[[str], str], broker: RunningBroker
) -> None:
    tidelog("topic", "create", "written", "-p", "2")
    assert tidelog("producers", "written")[1].count("\n") == 1
    tidelog("produce", "written", "-f", lines("1\n2\n3\n"), "--partition", "1")
    code, shown, _ = tidelog("producers", "written")
    assert code == 0
    heading, row = shown.splitlines()
    assert heading.split("  ")[0] == "PARTITION"
    partition, producer_id, epoch, last_sequence, timestamp = row.split()[:5]
    assert (partition, epoch, last_sequence) == ("1", "0", "2")
    assert int(producer_id) >= 0
    assert timestamp.endswith("Z")
    log = broker.data_dir / "written-1" / f"{0:020d}.log"
    dumped = tidelog("log", "dump", str(log), "--records")[1]
    assert f"producer={producer_id} epoch=0 sequences=0-2" in dumped
    assert "value='3'" in dumped


def test_producers_have_their_batches_however_many_answers_it_takes(
    tidelog: Type, lines: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "_ROWS_AT_ONCE", 2)
    tidelog("topic", "create", "written-by-five")
    for _ in range(5):
        tidelog("produce", "written-by-five", "-f", lines("1\n"))

    def answer() -> str:
        code, shown, problem = tidelog("producers", "written-by-five")
        assert code == 0
        return "" if problem else shown  # A broker of a busy machine may not answer another one in time.

    shown = wait_for(answer, "the batches of all producers", DEADLINE_SECONDS)
    assert sorted(row.split()[-1] for row in shown.splitlines()[1:]) == [
        f"0-0@{offset}" for offset in range(5)
    ]


def test_lines_typed_one_by_one_are_stored_one_by_one(broker: RunningBroker, tidelog: Type) -> None:
    """Both ends stay open: each line is read back before the next one is written."""
    tidelog("topic", "create", "typed")
    where = {"env": os.environ | {"TIDELOG_BOOTSTRAP_SERVERS": broker.address}}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **where}
    with (
        typed("consume", "typed", "--from-beginning", **pipes) as reader,
        typed("produce", "typed", stdin=subprocess.PIPE, **pipes) as writer,
    ):
        assert writer.stdin is not None
        for line in ("one\n", "two\n"):
            writer.stdin.write(line)
            writer.stdin.flush()
            assert next_line(reader) == line
        reported = writer.communicate(timeout=PATIENCE_S)[1]
        assert writer.returncode == 0
        assert reported.startswith("stored 2 records in typed (")
        reader.send_signal(signal.SIGINT)
        assert reader.communicate(timeout=PATIENCE_S) == ("", "")
        assert reader.returncode == 0


def test_a_writer_that_is_interrupted_has_stored_its_whole_lines(
    broker: RunningBroker, tidelog: Type
) -> None:
    tidelog("topic", "create", "interrupted")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with typed("produce", "interrupted", "-b", broker.address, **pipes) as writer:
        assert writer.stdin is not None
        writer.stdin.write("one\ntwo\nhalf a li")
        writer.stdin.flush()
        read = tidelog("consume", "interrupted", "--from-beginning", "--max-messages", "2")
        assert read[1] == "one\ntwo\n"
        writer.send_signal(signal.SIGINT)
        assert writer.wait(PATIENCE_S) == 130
        assert writer.stderr is not None
        assert writer.stderr.read() == ""
    assert tidelog("topic", "describe", "interrupted")[1].split()[-1] == "2"


def test_a_reader_that_has_enough_is_no_failure(
    broker: RunningBroker, lines: Callable[[str], str], tidelog: Type
) -> None:
    tidelog("topic", "create", "long")
    tidelog("produce", "long", "-f", lines("x" * 1000 + "\n"), "-b", broker.address)
    tidelog("produce", "long", "-f", lines("\n".join("y" * 100 for _ in range(20_000))))
    command = " ".join((*TIDELOG, "consume", "long", "--from-beginning", "-b", broker.address))
    shown = subprocess.run(
        ["bash", "-c", f"{command} | head -c 1000; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"x" * 1000, b"")


@pytest.fixture
def served(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`tidelog serve` as a person starts it, once it has said something."""
    settings = ["--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--set", "num.partitions=4"]
    with typed(
        *("serve", "--data-dir", str(tmp_path / "data"), *settings),
        stdout=subprocess.PIPE,
        env=os.environ | {"TIDELOG_BOOTSTRAP_SERVERS": "elsewhere:1"},
    ) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        yield process


def test_serve_says_where_it_listens_and_ends_with_0(
    served: "subprocess.Popen[str]", tidelog: Type, tmp_path: Path
) -> None:
    process = served
    assert process.stdout is not None
    started = json.loads(next_line(process))
    assert started["event"] == "broker_started"
    address = f"127.0.0.1:{started['port']}"
    assert tidelog("topic", "create", "served", "-b", address)[1] == "created served (4 partitions)\n"
    ready = urllib.request.urlopen(
        f"http://127.0.0.1:{started['http_port']}/readyz", timeout=DEADLINE_SECONDS
    )
    assert ready.status == 200
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "broker_stopped"
