"""`tidelog fault` and the batches of `tidelog producers`, typed against brokers that allow it or do not."""

import json
import socket
import threading
from pathlib import Path

import pytest

from tests.conformance.commands import Type
from tests.conformance.conftest import RunningBroker, broker_with
from tests.ports import free_address

broker = broker_with(faults_enable=True)
plain = broker_with()


@pytest.fixture
def lines(tmp_path: Path) -> str:
    (tmp_path / "lines").write_text("a\nb\nc\n")
    return str(tmp_path / "lines")


def test_every_fault_can_be_ordered_listed_and_cleared(tidelog: Type) -> None:
    assert tidelog("fault", "drop", "t", "-n", "2")[1].endswith(": produce of t, next 2\n")
    assert tidelog("fault", "delay", "250", "--count", "0", "--api", "fetch")[1].endswith(
        ": fetch, until cleared, 250 ms\n"
    )
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER, before it takes effect" in tidelog("fault", "error", "45", "t")[1]
    assert tidelog("fault", "cut", "--client-id", "me", "--skip", "4")[1].endswith(
        "after it takes effect, after 4 more, client me\n"
    )
    heading, *rows = tidelog("fault", "list")[1].splitlines()
    assert heading.split()[:2] == ["ID", "FAULT"]
    assert [row.split()[1] for row in rows] == ["drop", "delay", "error", "cut"]
    assert tidelog("fault", "clear", rows[0].split()[0]) == (0, "cleared 1 fault\n", "")
    assert tidelog("fault", "clear") == (0, "cleared 3 faults\n", "")
    assert tidelog("fault", "clear", "1")[0] == 1


def test_a_client_gets_past_a_fault_and_the_list_tells_that_it_happened(tidelog: Type, lines: str) -> None:
    tidelog("topic", "create", "hit")
    tidelog("fault", "cut", "hit")
    assert tidelog("produce", "hit", "--file", lines)[0] == 0
    assert tidelog("consume", "hit", "--from-beginning", "--max-messages", "3")[1] == "a\nb\nc\n"
    assert tidelog("fault", "list")[1].count("\n") == 1
    last = tidelog("fault", "list", "--finished")[1].splitlines()[-1].split()
    assert last[1:7] == ["cut", "produce", "hit", "-", "1", "0"]


def test_producers_are_moved_and_forgotten(tidelog: Type, lines: str) -> None:
    tidelog("topic", "create", "known")
    tidelog("produce", "known", "--file", lines)
    row = json.loads(tidelog("producers", "known", "--json")[1])
    assert row["batches"] == [
        {
            "base_sequence": 0,
            "last_sequence": 2,
            "base_offset": 0,
            "last_offset": 2,
            "timestamp": row["last_timestamp"],
        }
    ]
    producer = str(row["producer_id"])
    moved = tidelog("fault", "sequence", "known", producer)[1]
    # The broker's own log lines stand before it, for it runs in this process.
    assert moved.endswith(
        f"producer {producer} on known-0 continues at 2147483638 in epoch 0 (its last sequence was 2)\n"
    )
    assert tidelog("producers", "known")[1].split()[-1] == "2147483637-2147483637@-"
    expired = f"producer {producer} on known-0 is forgotten (its last sequence was 2147483637)\n"
    assert tidelog("fault", "expire", "known", producer)[1].endswith(expired)
    code, _, error = tidelog("fault", "forget", "known", producer)
    assert code == 1
    assert "remembers no producer" in error


def test_a_broker_without_faults_says_how_to_get_them(plain: RunningBroker, tidelog: Type) -> None:
    code, shown, error = tidelog("fault", "drop", "t", "-b", plain.address)
    assert (code, shown) == (1, "")
    assert error.startswith("error: faults are not enabled on this broker: start the broker with --enable-f")


def test_where_no_http_port_answers_producers_are_listed_without_their_batches(
    tidelog: Type, lines: str
) -> None:
    tidelog("topic", "create", "plain")
    tidelog("produce", "plain", "--file", lines)
    nobody = free_address()
    code, shown, error = tidelog("producers", "plain", "--http", nobody)
    assert code == 0
    assert shown.splitlines()[1].split()[-1] == "-"
    assert error.startswith(f"the batches cannot be shown: http://{nobody} does not answer")


def test_the_batches_of_another_cluster_are_not_shown(
    plain: RunningBroker, tidelog: Type, lines: str
) -> None:
    for address in ((), ("-b", plain.address)):
        tidelog("topic", "create", "both", *address)
        tidelog("produce", "both", "--file", lines, *address)
    shown, error = tidelog("producers", "both", "--http", f"127.0.0.1:{plain.http_port}")[1:]
    assert shown.splitlines()[1].split()[-1] == "-"
    assert "another cluster" in error


def test_something_else_on_the_http_port_is_named(tidelog: Type) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        code, _, error = tidelog("fault", "list", "--http", address)
        thread.join()
    assert code == 1
    assert error == f"error: http://{address}/faults does not answer as a Tidelog broker does\n"


def test_a_broker_without_a_http_port_says_so(tmp_path: Path, tidelog: Type, lines: str) -> None:
    alone = RunningBroker(tmp_path / "alone", http_port=-1)
    try:
        tidelog("produce", "t", "--create-topic", "--file", lines, "-b", alone.address)
        code, shown, error = tidelog("producers", "t", "-b", alone.address)
        assert (code, shown.splitlines()[1].split()[-1]) == (0, "-")
        assert "does not name its HTTP port" in error
        assert "does not name its HTTP port" in tidelog("fault", "list", "-b", alone.address)[2]
    finally:
        alone.stop()
