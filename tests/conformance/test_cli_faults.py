"""`tidelog fault` and the batches of `tidelog producers`, typed against brokers that allow it or do not."""

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
