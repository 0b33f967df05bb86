"""Records through the command and back: formats, places to begin and to end, groups, a pace."""

import asyncio
import signal
import subprocess
import time
from pathlib import Path

from tests.conformance.commands import PATIENCE_S, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.conformance.registry import registry
from tidelog.client import Producer


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
