"""What each object store promises: a folder, and a bucket of a server that speaks S3's protocol."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.buckets import bucket_server
from tests.unit.broker.tiering.conftest import (
    TIERED,
    OpenTiered,
    clock,
    fill,
    open_asker,
    open_tiered,
    read_all,
    settle,
)
from tidelog.protocol.schema import ApiKey
from tidelog.remote_log.folder_store import TEMPORARY_SUFFIX, FolderStore
from tidelog.remote_log.manifest import CopiedSegment, Manifest, ManifestError, decode, encode
from tidelog.remote_log.object_store import ObjectStore, open_store
from tidelog.remote_log.partition_objects import ManifestConflictError, PartitionObjects

__all__ = ["clock", "open_asker", "open_tiered"]
TOPIC = UUID(int=7)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket_server() as url:
        yield url


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "folder":
        return open_store(f"file://{tmp_path}/re%20mote")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    prefix = tmp_path.name
    return open_store(f"s3://bucket/{prefix}", endpoint=request.getfixturevalue("server"))


async def test_a_broker_copies_to_a_bucket_and_reads_from_it(
    open_tiered: OpenTiered, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    bucket = {"remote_storage_url": "s3://bucket/broker", "remote_storage_endpoint": server}
    asker = await open_tiered(**bucket)
    await asker.create("t", **TIERED)
    await fill(asker, 10)
    await settle(asker)
    await asker.services.close(clean=False)
    asker = await open_tiered(**bucket)
    await asker.services.tiering.look()
    assert asker.replica("t").log.start_offset > 5
    assert await read_all(asker, 0) == list(range(10))
    await asker.ask(ApiKey.DELETE_TOPICS, 3, topic_names=["t"])
    await settle(asker)


def test_an_object_is_whole_read_in_ranges_listed_and_deleted(store: ObjectStore) -> None:
    assert store.names("a") == []
    large = bytes(range(256)) * 40_000
    store.put("a/b/large", (large[at : at + 100_000] for at in range(0, len(large), 100_000)))
    store.put("a/empty", [])
    assert bytes(store.get_range("a/b/large", 3, 5)) == large[3:8]
    assert bytes(store.get_range("a/b/large", len(large) - 2, 2)) == large[-2:]
    assert store.get("a/b/large") == large
    assert sorted(store.names("a")) == ["a/b/large", "a/empty"]
    assert store.names("a/b") == ["a/b/large"]
    store.delete(["a/b/large", "a/empty", "a/never"])
    assert store.names("a") == []
    with pytest.raises(FileNotFoundError):
        store.get("a/b/large")
    with pytest.raises(FileNotFoundError):
        store.get_range("a/b/large", 0, 1)


def test_only_the_first_of_two_puts_a_new_object(store: ObjectStore) -> None:
    assert store.put_new("a/b", b"first")
    assert not store.put_new("a/b", b"second")
    assert store.get("a/b") == b"first"
    assert store.names("a") == ["a/b"]


def first_manifest(epoch: int = 0) -> Manifest:
    return Manifest(0, "t", TOPIC, 3, epoch, 0, 0)


def copied(base: int, end: int) -> CopiedSegment:
    return CopiedSegment(f"{base:020d}-0-x", base, end, 100, 1, (8, 12, 34), 2, 3, base, 4)


def test_of_two_leaders_one_replaces_the_manifest(store: ObjectStore) -> None:
    objects = PartitionObjects(store, TOPIC, 3)
    assert objects.load() is None
    first = first_manifest()
    objects.commit(first)
    objects.commit(first)  # A request that was repeated.
    second = first.with_copied(copied(0, 5), [(0, 0)])
    objects.commit(second)
    with pytest.raises(ManifestConflictError):
        objects.commit(first.with_copied(copied(0, 7), [(0, 0)]))
    assert objects.load() == second
    third = second.starting_at(5)
    objects.commit(third)
    fourth = third.with_copied(copied(5, 9), [(0, 0)])
    objects.commit(fourth)
    # A leader that knows the first one only: the second is deleted by now.
    with pytest.raises(ManifestConflictError):
        objects.commit(first.with_copied(copied(0, 7), [(0, 0)]))
    assert objects.load() == fourth


def test_a_sweep_deletes_what_no_manifest_names_and_nothing_of_a_later_leader(store: ObjectStore) -> None:
    objects = PartitionObjects(store, TOPIC, 3)
    manifest = first_manifest().with_copied(copied(0, 5), [])
    for name in (manifest.segments[0].name, "left"):
        store.put(objects.path(name + ".log"), [b"x"])
        store.put(objects.path(name + ".indexes"), [b"x"])
    objects.commit(manifest)
    assert objects.sweep(manifest) == 2
    assert objects.sweep(manifest) == 0
    objects.commit(manifest.next(leader_epoch=1))
    store.put(objects.path("newer.log"), [b"x"])
    with pytest.raises(ManifestConflictError):
        objects.sweep(manifest)
    objects.delete_all()
    assert store.names(str(TOPIC)) == []


def test_a_folder_shows_what_a_killed_process_left(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def pieces() -> Iterator[bytes]:
        yield b"x"
        left.extend(path.name for path in (tmp_path / "a").iterdir())
        raise Stop

    left: list[str] = []
    store = FolderStore(tmp_path)
    with pytest.raises(Stop):
        store.put("a/b", pieces())
    assert [name.endswith(TEMPORARY_SUFFIX) for name in left] == [True]
    assert store.names("a") == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-1], "checksum"),
        (lambda data: data.replace(b'"partition":3', b'"partition":4'), "checksum"),
        (lambda data: b"", "checksum"),
    ],
)
def test_a_damaged_manifest_is_refused(change: object, problem: str) -> None:
    data = encode(first_manifest().with_copied(copied(0, 5), [(0, 0)]))
    assert encode(decode(data)) == data
    with pytest.raises(ManifestError, match=problem):
        decode(change(data))  # type: ignore[operator]


@pytest.mark.parametrize(
    "manifest",
    [
        first_manifest().with_copied(copied(1, 5), []),
        first_manifest().with_copied(copied(0, 5), []).with_copied(copied(6, 8), []),
        first_manifest().with_copied(copied(0, 5), []).next(end_offset=6),
        first_manifest().next(format=2),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ManifestError):
        decode(encode(manifest))


@pytest.mark.parametrize("url", ["http://x/y", "s3://", "file://relative", "/folder"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected file:///FOLDER or s3://BUCKET/PREFIX"):
        open_store(url)
