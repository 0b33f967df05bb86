"""`tidelog group` against a real broker, with groups that clients of others made."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest
import typer
from confluent_kafka import Consumer, TopicPartition
from typer.main import get_command

from tests.conformance.commands import PATIENCE_S, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.ports import free_address
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.cli import completion
from tidelog.cli.app import app
from tidelog.client import ClusterConfig

RECORDS = 10
FIRST_TIMESTAMP = 1_000


@pytest.fixture(scope="module")
def address(broker: RunningBroker) -> str:
    peer = ConfluentKafka()
    peer.create_topics(broker.address, {"t": 2})
    messages = [Message(0, FIRST_TIMESTAMP + number, None, b"v") for number in range(RECORDS)]
    peer.write(broker.address, {"t": ("none", messages)})
    return broker.address


def consumer_of(address: str, group: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


@pytest.fixture
def group(address: str, request: pytest.FixtureRequest) -> str:
    """A group without members that committed 4 in the first partition of t."""
    name = f"group-of-{request.node.name}"
    consumer = consumer_of(address, name)
    consumer.commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    consumer.close()
    return name


@pytest.fixture
def member(address: str) -> Iterator[str]:
    """A group with a member that reads t."""
    consumer = consumer_of(address, "with-a-member")
    consumer.subscribe(["t"])
    wait_for(lambda: consumer.poll(0.1) and consumer.assignment(), "an assignment", DEADLINE_SECONDS)
    yield "with-a-member"
    consumer.close()


def cells(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()]


def test_groups_are_listed_with_their_states(tidelog: Type, group: str, member: str) -> None:
    code, shown, _ = tidelog("group", "list")
    assert code == 0
    heading, *rows = cells(shown)
    assert heading == ["GROUP", "TYPE", "STATE"]
    assert [group, "classic", "Empty"] in rows
    assert [member, "classic", "Stable"] in rows


def test_a_group_is_described_with_its_lag(tidelog: Type, group: str) -> None:
    code, shown, _ = tidelog("group", "describe", group)
    assert code == 0
    assert cells(shown) == [
        [group, "classic", "Empty", "0", "members"],
        ["TOPIC", "PARTITION", "COMMITTED", "NEXT", "OFFSET", "LAG"],
        ["t", "0", "4", str(RECORDS), str(RECORDS - 4)],
    ]


def test_the_lag_of_groups_is_shown_per_topic_once_or_again_and_again(
    tidelog: Type, address: str, group: str
) -> None:
    code, shown, _ = tidelog("group", "lag", group)
    assert (code, cells(shown)) == (0, [["GROUP", "TOPIC", "PARTITIONS", "LAG"], [group, "t", "1", "6"]])
    code, shown, _ = tidelog("group", "lag", "--json")
    assert {"group": group, "topic": "t", "partitions": 1, "lag": 6} in map(json.loads, shown.splitlines())
    assert tidelog("group", "lag", "nobody")[0] == 1
    again = ("group", "lag", group, "--watch", "0.1", "--json", "-b", address)
    with typed(*again, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert len({next_line(watching) for _ in range(3)}) == 1
        watching.send_signal(signal.SIGINT)
        assert watching.communicate(timeout=PATIENCE_S)[1] == ""
        assert watching.returncode == 0


def test_a_shell_completes_the_names_of_topics_and_groups(
    address: str, group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "_TIMEOUT_MS", DEADLINE_SECONDS * 1000)
    context = typer.Context(get_command(app).commands["group"])
    context.params["cluster"] = ClusterConfig(address)
    assert completion.topic_names(context, "t") == ["t"]
    assert completion.topic_names(context, "x") == []
    assert group in completion.group_names(context, "group-of")
    context.params["cluster"] = ClusterConfig(free_address(), request_timeout_ms=100)
    assert completion.topic_names(context, "") == []
    assert capsys.readouterr() == ("", "")


def test_members_are_shown_with_where_they_come_from(tidelog: Type, member: str) -> None:
    code, shown, _ = tidelog("group", "describe", member, "--json")
    assert json.loads(shown)["members"][0]["member_id"].startswith("rdkafka-")
    code, shown, _ = tidelog("group", "describe", member)
    assert code == 0
    heading, who, *_ = cells(shown)
    assert heading == [member, "classic", "Stable", "1", "member", "range"]
    assert who[0].startswith("rdkafka-")
    assert who[1].endswith("127.0.0.1")


def test_a_group_of_the_consumer_protocol_is_listed_and_described_as_such(
    tidelog: Type, address: str
) -> None:
    consumer = consumer_of(address, "new", "consumer")
    try:
        consumer.subscribe(["t"])
        wait_for(lambda: consumer.poll(0.1) and consumer.assignment(), "an assignment", DEADLINE_SECONDS)
        assert ["new", "consumer", "Stable"] in cells(tidelog("group", "list")[1])
        heading, who, *_ = cells(tidelog("group", "describe", "new")[1])
        assert heading == ["new", "consumer", "Stable", "1", "member", "uniform"]
        assert who[1].endswith("127.0.0.1")
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("wanted", "after"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), RECORDS),
        (("--to-offset", "7"), 7),
        (("--to-offset", "99"), RECORDS),
        (("--shift-by", "-3"), 1),
        (("--shift-by", "-9"), 0),
        (("--to-timestamp", str(FIRST_TIMESTAMP + 3)), 3),
        (("--to-timestamp", str(FIRST_TIMESTAMP + 99)), RECORDS),
    ],
)
def test_offsets_are_moved_and_a_consumer_goes_on_there(
    tidelog: Type, address: str, group: str, wanted: tuple[str, ...], after: int
) -> None:
    expected = [["TOPIC", "PARTITION", "BEFORE", "AFTER"], ["t", "0", "4", str(after)]]
    code, shown, _ = tidelog("group", "reset-offsets", group, *wanted, "--dry-run")
    assert (code, cells(shown)) == (0, expected)
    assert cells(tidelog("group", "describe", group)[1])[-1][2] == "4"
    code, shown, _ = tidelog("group", "reset-offsets", group, *wanted)
    assert (code, cells(shown)) == (0, expected)
    consumer = consumer_of(address, group)
    (found,) = consumer.committed([TopicPartition("t", 0)], timeout=DEADLINE_SECONDS)
    consumer.close()
    assert found.offset == after


def test_offsets_of_a_topic_that_the_group_never_read_are_set(tidelog: Type, group: str) -> None:
    code, shown, _ = tidelog("group", "reset-offsets", group, "--to-latest", "--topic", "t")
    assert code == 0
    assert cells(shown)[1:] == [["t", "0", "4", str(RECORDS)], ["t", "1", "-", "0"]]


def test_a_group_with_members_keeps_what_it_committed_and_is_not_deleted(tidelog: Type, member: str) -> None:
    code, _, error = tidelog("group", "reset-offsets", member, "--to-earliest", "--topic", "t")
    assert code == 1
    assert "has 1 member; stop them first" in error
    code, _, error = tidelog("group", "delete", member)
    assert code == 1
    assert "NON_EMPTY_GROUP" in error


def test_a_deleted_group_is_gone(tidelog: Type, group: str) -> None:
    assert tidelog("group", "delete", group) == (0, f"deleted {group}\n", "")
    code, _, error = tidelog("group", "describe", group)
    assert code == 1
    assert f"there is no group {group!r}" in error
    code, _, error = tidelog("group", "delete", group)
    assert code == 1
    assert "GROUP_ID_NOT_FOUND" in error


def test_a_group_that_never_was_may_be_given_offsets(tidelog: Type, address: str) -> None:
    code, shown, _ = tidelog("group", "reset-offsets", "never-was", "--to-latest", "--topic", "t")
    assert (code, cells(shown)[1:]) == (0, [["t", "0", "-", str(RECORDS)], ["t", "1", "-", "0"]])
    code, _, error = tidelog("group", "reset-offsets", "other", "--to-latest")
    assert code == 1
    assert "has committed nothing; name a topic with --topic" in error


def test_one_target_must_be_named(tidelog: Type, group: str) -> None:
    for wanted in ((), ("--to-earliest", "--to-latest")):
        code, _, error = tidelog("group", "reset-offsets", group, *wanted)
        assert code == 2
        assert "expected one of --to-earliest" in error


def test_settings_of_a_group_are_changed_and_listed(tidelog: Type) -> None:
    changes = ("--set", "share.auto.offset.reset=earliest", "--set", "share.session.timeout.ms=50000")
    assert tidelog("group", "config", "pool", *changes) == (
        0,
        "set share.auto.offset.reset=earliest for pool\nset share.session.timeout.ms=50000 for pool\n",
        "",
    )
    shown = "deleted share.session.timeout.ms of pool\n"
    assert tidelog("group", "config", "pool", "--delete", "share.session.timeout.ms") == (0, shown, "")
    found = {each[0]: each[1:] for each in cells(tidelog("group", "config", "pool")[1])}
    assert found["share.auto.offset.reset"] == ["earliest", "this", "group"]
    assert found["share.session.timeout.ms"] == ["45000", "all", "groups"]
    code, _, error = tidelog("group", "config", "pool", "--set", "share.lock=1")
    assert code == 1
    assert "Unknown config name: share.lock" in error
