"""`tidelog bench produce|consume` against our broker, against another's, and where there is none."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.commands import Type, typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.several import BrokerProcess
from tests.conformance.tansu import running_tansu
from tests.ports import free_port
from tests.waiting import DEADLINE_SECONDS
from tidelog.cli import failures

_NO_ANSWER = re.compile("no answer within 500 ms|does not answer")
BOTH = [("produce",), ("consume", "--timeout-ms", "500")]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_broker_is_measured_from_both_sides(tidelog: Type, acks: str) -> None:
    topic = f"measured-{acks}"
    tidelog("topic", "create", topic)
    options = ("--records", "2000", "--record-size", "50", "--compression", "lz4", "--acks", acks)
    code, shown, error = tidelog("bench", "produce", topic, *options, "--json")
    assert (code, error) == (0, "")
    told = json.loads(shown)
    assert (told["records"], told["record_size"], told["acks"], told["compression"]) == (
        2000,
        50,
        acks,
        "lz4",
    )
    assert told["records_per_second"] == pytest.approx(told["records"] / told["seconds"], rel=0.01)
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
    code, shown, error = tidelog("bench", "consume", topic, "--records", "2000", "--json")
    assert (code, error) == (0, "")
    told = json.loads(shown)
    assert told["records"] == 2000
    assert told["megabytes_per_second"] == pytest.approx(
        2000 * 50 / told["seconds"] / 1e6, rel=0.01, abs=0.001
    )


def test_the_rate_of_a_measurement_is_held(tidelog: Type) -> None:
    tidelog("topic", "create", "paced")
    shown = tidelog("bench", "produce", "paced", "--records", "21", "--rate", "100", "--json")[1]
    assert json.loads(shown)["seconds"] >= 0.2


def test_a_topic_without_records_cannot_be_measured(tidelog: Type) -> None:
    tidelog("topic", "create", "bare")
    code, _, error = tidelog("bench", "consume", "bare", "--timeout-ms", "100")
    assert code == 1
    assert "arrived in 100 ms" in error


def test_a_broker_by_others_is_measured_as_well(tansu: str, tidelog: Type) -> None:
    here = ("-b", tansu)
    assert tidelog("topic", "create", "measured", "-p", "2", *here)[0] == 0
    for acks in ("all", "1", "0"):
        options = ("--records", "500", "--record-size", "64", "--acks", acks, "--json")
        code, shown, error = tidelog("bench", "produce", "measured", *options, *here)
        assert (code, error) == (0, "")
        told = json.loads(shown)
        assert (told["records"], told["acks"]) == (500, acks)
        assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["max"]
    # Nobody says when what went without acknowledgement has arrived.
    code, shown, error = tidelog("bench", "consume", "measured", "--records", "1000", "--json", *here)
    assert (code, error) == (0, "")
    assert json.loads(shown)["records"] == 1000
    code, shown, _ = tidelog("bench", "consume", "measured", "--records", "1000", *here)
    assert shown.startswith("consumed 1,000 records in ")
    code, _, error = tidelog("bench", "consume", "absent", "--timeout-ms", "100", *here)
    assert (code, error.count("\n")) == (1, 1)
    assert "topic 'absent'" in error


@pytest.fixture(scope="module")
def tansu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_tansu(tmp_path_factory.mktemp("tansu")) as address:
        yield address


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """Something that accepts connections, and answers `answer` to the first bytes, or never.

    After the block nobody is there.
    """
    server = socket.create_server(("127.0.0.1", free_port()))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                if connection.recv(1000) and answer is not None:
                    connection.sendall(answer)
                    connection.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    if answer is not None:
        thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        if answer is not None:
            thread.join(DEADLINE_SECONDS)


def no_broker(tidelog: Type, work: tuple[str, ...], address: str) -> str:
    """What the command says in its one line."""
    code, shown, error = tidelog("bench", *work, "t", "--records", "10", "-b", address)
    assert (code, shown, error.count("\n")) == (1, "", 1)
    assert error.startswith("error: no broker can be reached (")
    assert "--bootstrap-servers" in error
    return error


@pytest.fixture
def hurried(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a command that waits shortly for an answer."""
    type_command = typist(capfd)

    def type_hurriedly(*arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patched:
            patched.setattr(failures, "_PATIENCE_S", 0.5)
            return type_command(*arguments)

    return type_hurriedly


@pytest.mark.parametrize("work", BOTH, ids=["produce", "consume"])
def test_where_nobody_is_or_answers_or_somebody_else_does_it_says_so(
    tidelog: Type, hurried: Type, work: tuple[str, ...]
) -> None:
    with answering(None) as silent:
        assert _NO_ANSWER.search(no_broker(hurried, work, silent))
    assert f"{silent}: Connection refused" in no_broker(hurried, work, silent)
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        assert "another security_protocol" in no_broker(tidelog, work, web)
        error = no_broker(hurried, work, f"{silent},{web},nowhere.invalid:1")
        assert all(address in error for address in (silent, web, "nowhere.invalid:1"))


def test_one_server_that_lives_is_enough(tidelog: Type, broker: RunningBroker) -> None:
    with answering(None) as closed:
        pass
    servers = ("-b", f"{closed},{broker.address}")
    assert tidelog("bench", "produce", "one-of-two", "--records", "10", *servers)[0] == 0
    assert tidelog("bench", "consume", "one-of-two", "--records", "10", *servers)[0] == 0


async def test_a_broker_that_stops_while_it_is_measured_is_left_in_time(
    hurried: Type, tmp_path: Path
) -> None:
    async with BrokerProcess(tmp_path / "data") as process:
        process.pause()
        work = ("bench", "produce", "t", "--records", "10", "-b", f"127.0.0.1:{process.port}")
        async with asyncio.timeout(DEADLINE_SECONDS):
            code, _, error = await asyncio.to_thread(hurried, *work)
        assert (code, error.count("\n")) == (1, 1)
        assert _NO_ANSWER.search(error)
