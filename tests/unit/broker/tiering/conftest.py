"""A broker's services with remote storage in a folder, opened again on the same folders after a crash."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch, open_asker
from tests.unit.broker.handlers.test_fetch import fetch
from tidelog.broker.tiering import tiering
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey
from tidelog.remote_log.manifest import Manifest
from tidelog.remote_log.object_store import ObjectStore, open_store

__all__ = ["open_asker"]
HOUR_MS = 3_600_000
TIERED = {"segment_bytes": "300", "remote_storage_enable": "true", "local_retention_bytes": "300"}
OpenTiered = Callable[..., Any]


@pytest.fixture
def open_tiered(
    open_asker: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenTiered:
    """Opens services over one data folder and one remote folder; `wrap` gives the store between them."""

    async def open_one(wrap: Callable[[ObjectStore], Any] = lambda store: store, **settings: Any) -> Asker:
        monkeypatch.setattr(tiering, "open_store", lambda url, **options: wrap(open_store(url, **options)))
        wanted = {
            "remote_log_manager_task_interval_ms": HOUR_MS,
            "remote_fetch_max_wait_ms": HOUR_MS,
            "remote_storage_url": f"file://{tmp_path}/remote",
            **settings,
        }
        asker: Asker = await open_asker(remote_log_storage_system_enable=True, **wanted)
        return asker

    return open_one


async def fill(asker: Asker, count: int, topic: str = "t", first: int = 0, **batch: Any) -> None:
    """Produce records of about 100 bytes, one a batch."""
    for number in range(first, first + count):
        answer = await asker.produce(topic, make_batch(b"%04d" % number + b"x" * 30, **batch))
        assert answer.error_code == 0


class Fetched(NamedTuple):
    code: int
    offsets: list[int]
    log_start_offset: int
    aborted: list[tuple[int, int]]


async def fetched(asker: Asker, offset: int, topic: str = "t", **options: Any) -> Fetched:
    """One Fetch: the base offsets of its batches."""
    answer = await fetch(asker, fetch_request((topic, 0, offset), **options))
    result = answer.topics[0][1][0]
    offsets = [header.base_offset for _, header in iter_batches(b"".join(map(bytes, result.records or ())))]
    return Fetched(
        result.error_code, offsets, result.log_start_offset, list(result.aborted_transactions or ())
    )


async def read_all(asker: Asker, offset: int, topic: str = "t", **options: Any) -> list[int]:
    """The base offsets of all batches from `offset` on."""
    found: list[int] = []
    while (answer := await fetched(asker, offset, topic, **options)).offsets:
        assert answer.code == 0
        found += answer.offsets
        offset = answer.offsets[-1] + 1
    return found


async def settle(asker: Asker) -> None:
    """Copy what can be copied, and delete it locally."""
    services = asker.services
    assert services.tiering is not None
    await services.tiering.look()
    await services.maintenance.checkpoint()
    await services.maintenance.checkpoint()
    await services.maintenance.apply_retention()
    await services.maintenance.checkpoint()
    await services.maintenance.checkpoint()


async def filled(
    open_tiered: OpenTiered, count: int, *wrap: Any, is_settled: bool = True, **settings: Any
) -> Asker:
    """A broker with the topic `t` and so many records, of which most have left the disk if it is settled."""
    asker: Asker = await open_tiered(*wrap, **settings)
    await asker.create("t", 1, **TIERED)
    await fill(asker, count)
    if is_settled:
        await settle(asker)
    return asker


async def reopened(open_tiered: OpenTiered, before: Asker | None = None) -> Asker:
    """The broker again, settled; `before` is killed."""
    if before is not None:
        await before.services.close(clean=False)
    asker: Asker = await open_tiered()
    await settle(asker)
    return asker


async def delete_before(asker: Asker, offset: int) -> tuple[int, int]:
    """Error code and low watermark of a DeleteRecords."""
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = await asker.ask(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=60_000)
    deleted = answer.topics[0].partitions[0]
    return deleted.error_code, deleted.low_watermark


def named_in(manifest: Manifest) -> set[str]:
    """The names of its objects."""
    return {each.name + suffix for each in manifest.segments for suffix in (".log", ".indexes")}


def manifest_of(asker: Asker, topic: str = "t") -> Manifest:
    manifest: Manifest = asker.replica(topic).log.remote.manifest  # type: ignore[union-attr]
    return manifest


def objects_in(folder: Path) -> set[str]:
    """The names of all files of remote storage, but manifests."""
    return {path.name for path in folder.rglob("*") if path.is_file() and "manifest" not in path.name}


async def listed(asker: Asker, timestamp: int, topic: str = "t", version: int = 9) -> Any:
    partitions = [{"partition_index": 0, "timestamp": timestamp}]
    answer = await asker.ask(ApiKey.LIST_OFFSETS, version, topics=[{"name": topic, "partitions": partitions}])
    return answer.topics[0].partitions[0]
