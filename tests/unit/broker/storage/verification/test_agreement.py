"""A verification and the start of a broker judge the same damage alike.

Damage to a verification is what a start reports as an error or an offline partition; a warning or nothing is
what a start reports as a warning, or takes without a word.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.conformance.raw import RawClient, connected
from tests.unit.broker.storage.verification.damaged import BATCHES, Folder
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.verification import Severity
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

END = 2 * BATCHES


@dataclass(frozen=True)
class Case:
    damage: Callable[[Folder], object]
    stop: str = "clean"
    """How the broker ended: cleanly, or killed or by a power cut after a checkpoint of everything."""
    is_damage: bool = True


def cut(number: int, batches: int, extra_bytes: int = 0) -> Callable[[Folder], object]:
    """Segment `number` ends so many batches (and bytes) after its beginning."""

    def damage(folder: Folder) -> None:
        log = folder.logs[number]
        places = folder.places(log)
        position = places[batches][0]
        log.write_bytes(log.read_bytes()[: position + extra_bytes])

    return damage


def zero_tail(count: int) -> Callable[[Folder], object]:
    def damage(folder: Folder) -> None:
        data = folder.last_log.read_bytes()
        folder.last_log.write_bytes(data[:-count] + bytes(count))

    return damage


def unfinished(folder: Folder) -> None:
    """The beginning of one more batch."""
    data = folder.last_log.read_bytes()
    position, _ = folder.places(folder.last_log)[-1]
    more = END.to_bytes(8, "big") + data[position + 8 : -9]
    folder.last_log.write_bytes(data + more)


def write(name: str, content: bytes) -> Callable[[Folder], object]:
    return lambda folder: (folder.path / name).write_bytes(content)


def remove(name: str) -> Callable[[Folder], object]:
    return lambda folder: (folder.path / name).unlink()


def without_snapshots(folder: Folder) -> None:
    for path in folder.partition.glob("*.snapshot"):
        path.unlink()


def accepted_hole(folder: Folder) -> None:
    """The second segment is gone, and the log was told to begin behind it."""
    log = folder.logs[1]
    end = int(folder.logs[2].stem)
    log.unlink()
    (folder.path / "log-start-offset-checkpoint").write_text(f"0\n2\nt 0 {end}\nu 0 0\n")


CASES = {
    "a middle segment is gone": Case(lambda folder: folder.logs[1].unlink()),
    "a middle segment is gone, killed": Case(lambda folder: folder.logs[1].unlink(), "killed"),
    "a middle segment is gone, power cut": Case(lambda folder: folder.logs[1].unlink(), "power cut"),
    "a middle segment is empty": Case(lambda folder: folder.logs[1].write_bytes(b"")),
    "a middle segment is cut between batches": Case(cut(1, 3)),
    "a middle segment is cut between batches, killed": Case(cut(1, 3), "killed"),
    "a middle segment is cut within a batch": Case(cut(1, 3, 40)),
    "a middle segment is cut within its last batch": Case(cut(1, -1, 70)),
    "the first segment is gone": Case(lambda folder: folder.logs[0].unlink()),
    "the first segment is gone, killed": Case(
        lambda folder: folder.logs[0].unlink(), "killed", is_damage=False
    ),
    "the first segment is empty": Case(lambda folder: folder.logs[0].write_bytes(b"")),
    "the first segment is cut": Case(cut(0, 2)),
    "the last segment is gone": Case(lambda folder: folder.last_log.unlink()),
    "the last segment is cut": Case(cut(-1, 1)),
    "the last segment is cut, power cut": Case(cut(-1, 1), "power cut"),
    "the hole was accepted": Case(accepted_hole, is_damage=False),
    "a torn write behind the end, killed": Case(unfinished, "killed", is_damage=False),
    "a torn write behind the end, power cut": Case(unfinished, "power cut", is_damage=False),
    "no snapshot, and the log begins at 0": Case(without_snapshots, is_damage=False),
    "metadata is garbage": Case(write("t-0/partition.metadata", b"\x00\xff garbage")),
    "metadata is another topic's": Case(
        lambda folder: (folder.partition / "partition.metadata").write_bytes(
            (folder.path / "u-0" / "partition.metadata").read_bytes()
        )
    ),
    "metadata is gone": Case(remove("t-0/partition.metadata")),
    "metadata is empty": Case(write("t-0/partition.metadata", b"")),
    "a start offset is behind the end": Case(write("log-start-offset-checkpoint", b"0\n2\nt 0 999\nu 0 0\n")),
    "start offsets are gone": Case(remove("log-start-offset-checkpoint")),
    "recovery points are gone": Case(remove("recovery-point-offset-checkpoint")),
    "recovery points are garbage": Case(write("recovery-point-offset-checkpoint", b"garbage")),
    "nothing": Case(lambda folder: None, is_damage=False),
    "nothing, killed": Case(lambda folder: None, "killed", is_damage=False),
}


def stop_as(folder: Folder, stop: str) -> None:
    if stop != "clean":
        points = (folder.path / "recovery-point-offset-checkpoint").read_text()
        folder.crash(same_boot=stop == "killed")
        (folder.path / "recovery-point-offset-checkpoint").write_text(points)


async def started(folder: Path) -> list[tuple[str, str]]:
    """Event and level of whatever a start of a broker says about its files."""
    with capture_logs() as events:
        config = BrokerConfig(
            data_dir=folder, port=0, http_port=-1, log_segment_bytes=4000, log_index_interval_bytes=400
        )
        async with await Broker.start(config) as broker, connected(broker.port) as client:
            await everything_is_read_or_refused(client)
    files = ("log_", "partition_", "checkpoint_")
    return [(e["event"], e["log_level"]) for e in events if e["event"].startswith(files)]


async def everything_is_read_or_refused(client: RawClient) -> None:
    """Whatever is served at an offset holds it: none is passed over without an error."""
    wanted = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}
    answer = await client.ask(ApiKey.LIST_OFFSETS, 3, {"replica_id": -1, "topics": [wanted]})
    begins = answer.topics[0].partitions[0]
    for offset in range(max(begins.offset, 0), END, 2):
        result = await client.fetch(offset)
        if result.error_code == ErrorCode.NONE and result.records:
            assert int.from_bytes(bytes(result.records)[:8], "big") == offset
        else:
            assert result.error_code or offset >= result.high_watermark


@pytest.mark.parametrize("name", CASES)
def test_what_is_damage_to_one_is_damage_to_the_other(folder: Folder, name: str) -> None:
    case = CASES[name]
    stop_as(folder, case.stop)
    case.damage(folder)
    found = [finding for finding in folder.verify() if finding.severity is Severity.DAMAGE]
    events = asyncio.run(started(folder.path))
    assert bool(found) == case.is_damage, found
    assert any(level == "error" for _, level in events) == case.is_damage, events


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_gone_is_damage_that_a_start_repairs_with_a_warning(
    folder: Folder, suffix: str
) -> None:
    folder.logs[1].with_suffix(suffix).unlink()
    assert [finding.severity for finding in folder.verify()] == [Severity.DAMAGE]
    assert asyncio.run(started(folder.path)) == [("log_recovered", "warning")]
    assert not folder.verify()


@pytest.mark.parametrize("count", [2, 100, 400])
@pytest.mark.parametrize("same_boot", [True, False])
def test_a_tail_of_zeros_behind_the_recovery_point_is_damage_to_both_or_to_none(
    folder: Folder, count: int, same_boot: bool
) -> None:
    folder.crash(same_boot=same_boot)
    zero_tail(count)(folder)
    is_damage = any(finding.severity is Severity.DAMAGE for finding in folder.verify())
    events = asyncio.run(started(folder.path))
    assert is_damage == same_boot
    assert any(level == "error" for _, level in events) == same_boot, events


def test_any_cut_of_any_closed_segment_is_damage_to_both(folder: Folder, tmp_path: Path) -> None:
    chance = random.Random(7)
    sound = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    for log in folder.logs[:-1]:
        for size in chance.sample(range(log.stat().st_size), 3):
            log.write_bytes(sound[log][:size])
            assert any(finding.severity is Severity.DAMAGE for finding in folder.verify()), (log, size)
            events = asyncio.run(started(folder.path))
            assert ("log_damage_found", "error") in events, (log, size)
            assert (folder.path / CLEAN_SHUTDOWN).exists()
            for path in [*folder.path.rglob("*")]:
                if path.is_file() and path not in sound:
                    path.unlink()
            for path, data in sound.items():
                path.write_bytes(data)
