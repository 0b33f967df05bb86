"""What each object store promises: a folder, and a bucket of a server that speaks S3's protocol."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.buckets import bucket_server
from tests.unit.broker.conftest import clock, open_here
from tests.unit.broker.tiering.conftest import (
    TIERED,
    OpenTiered,
    fill,
    open_asker,
    open_tiered,
    read_all,
    settle,
)
from tidelog.protocol.schema import ApiKey
from tidelog.remote_log.folder_store import TEMPORARY_SUFFIX, FolderStore
from tidelog.remote_log.manifest import (
    CopiedSegment,
    Manifest,
    ManifestError,
    decode,
    encode,
    manifest_name,
    segment_name,
)
from tidelog.remote_log.object_store import ObjectStore, open_store
from tidelog.remote_log.partition_objects import ManifestConflictError, PartitionObjects

__all__ = ["clock", "open_asker", "open_here", "open_tiered"]
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
    assert store.get("a/b/large", len(large)) == large
    assert sorted(store.names("a")) == ["a/b/large", "a/empty"]
    assert store.names("a/b") == ["a/b/large"]
    store.delete(["a/b/large", "a/empty", "a/never"])
    assert store.names("a") == []
    with pytest.raises(FileNotFoundError):
        store.get("a/b/large", len(large))
    with pytest.raises(FileNotFoundError):
        store.get_range("a/b/large", 0, 1)


def test_only_the_first_of_two_puts_a_new_object(store: ObjectStore) -> None:
    assert store.put_new("a/b", b"first")
    assert not store.put_new("a/b", b"second")
    assert store.get("a/b", 5) == b"first"
    assert store.names("a") == ["a/b"]


def test_an_object_that_is_larger_than_expected_is_not_read(store: ObjectStore) -> None:
    store.put("a/b", [b"12345"])
    with pytest.raises(OSError, match="has 5 bytes, expected at most 4"):
        store.get("a/b", 4)


FOREIGN_NAMES = (
    "../victim/x",
    "a/../../victim/x",
    "a/..",
    "/victim/x",
    "a//x",
    "./x",
    "",
    "a/",
    "a/x\n",
    "a/x y",
    "a\\x",
    "a/x\0",
    "a/%2e%2e/x",
    "a/é",
    "a/" + "x" * 300,
    "a/b/c/d/e",
)


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_a_name_of_another_form_is_refused_by_every_call(
    store: ObjectStore, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim" / "x"
    victim.parent.mkdir()
    victim.write_bytes(b"kept")
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put(name, [b"x"]),
        "put_new": lambda: store.put_new(name, b"x"),
        "get": lambda: store.get(name, 10),
        "get_range": lambda: store.get_range(name, 0, 1),
        "names": lambda: store.names(name),
        "delete": lambda: store.delete(["a/b", name]),
    }
    store.put("a/b", [b"x"])
    for call in calls.values():
        with pytest.raises(OSError, match="expected the name of an object"):
            call()
    assert victim.read_bytes() == b"kept"
    assert store.names("a") == ["a/b"]


def test_links_in_the_folder_lead_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_bytes(b"kept")
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "linked").symlink_to(victim)
    (tmp_path / "root" / "a" / "x").symlink_to(victim / "x")
    (tmp_path / "entry").symlink_to(tmp_path / "root")
    for root in (tmp_path / "root", tmp_path / "entry"):  # The folder itself may be a link.
        store = FolderStore(root)
        for name in ("linked/x", "a/x"):
            with pytest.raises(OSError, match=r"link|symbolic"):
                store.get(name, 10)
            with pytest.raises(OSError, match=r"link|symbolic"):
                store.get_range(name, 0, 1)
        with pytest.raises(OSError, match="link"):
            store.names("linked")
        with pytest.raises(OSError, match="link"):
            store.put("linked/x", [b"y"])
        with pytest.raises(OSError, match="link"):
            store.delete(["linked/x"])
        store.put("a/y", [b"y"])
        store.delete(["a/x", "a/y"])
        (tmp_path / "root" / "a").mkdir(exist_ok=True)
        (tmp_path / "root" / "a" / "x").symlink_to(victim / "x")
    assert (victim / "x").read_bytes() == b"kept"
    assert [each.name for each in victim.iterdir()] == ["x"]


def test_what_others_put_into_the_store_is_not_shown(store: ObjectStore, tmp_path: Path) -> None:
    objects = PartitionObjects(store, TOPIC, 3)
    first = first_manifest()
    objects.commit(first)
    store.put(objects.path("sub/") + "manifest-00000000000000000009.json", [b"x"])
    store.put(objects.path("manifest-99999999999999999999.json"), [b"x"])
    assert objects.load() == first
    if isinstance(store, FolderStore):
        (tmp_path / "re mote" / objects.path("an odd name")).write_bytes(b"x")
        assert not any("odd" in name for name in store.names(str(TOPIC)))


def test_a_folder_never_removes_more_than_its_own_folders(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "one" / "root")
    store.put("x", [b"x"])
    store.put("a/b/x", [b"x"])
    store.delete(["x", "a/b/x"])
    assert list((tmp_path / "one" / "root").iterdir()) == []


def first_manifest(epoch: int = 0) -> Manifest:
    return Manifest(0, "t", TOPIC, 3, epoch, 0, 0)


def copied(base: int, end: int) -> CopiedSegment:
    name = segment_name(base, 0, UUID(int=end))
    return CopiedSegment(name, base, end, 100, 1, (8, 12, 34), 2, 3, base, 4)


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


SEGMENT = copied(0, 5)
FORGED_SEGMENTS: dict[str, list[Any]] = {
    "name": [
        "../../../victim/x",
        "x",
        "",
        f"{SEGMENT.name}\n",
        f"{SEGMENT.name}0",
        "0" * 2000,
        segment_name(7, 0, UUID(int=5)),
    ],
    "base_offset": [-1, 2**63],
    "end_offset": [0, -1, 2**63],
    "size_bytes": [-1, 2**31],
    "crc": [-1, 2**32],
    "index_sizes": [(-8, 12, 34), (7, 12, 34), (8, 12, 35), (8 * 4, 12, 34), (8, 12, 34 * 10**6)],
    "indexes_crc": [-1, 2**32],
    "max_timestamp": [-2, 2**63],
    "max_timestamp_offset": [5, -1, 2**62],
    "latest_ms": [-2, 2**63],
}
FORGED = [
    first_manifest().with_copied(msgspec.structs.replace(SEGMENT, **{field: value}), [(0, 0)])
    for field, values in FORGED_SEGMENTS.items()
    for value in values
] + [
    msgspec.structs.replace(first_manifest().with_copied(SEGMENT, [(0, 0)]), **change)
    for change in (
        {"number": -1},
        {"number": 2**63},
        {"topic": "t" * 250},
        {"partition": -1},
        {"leader_epoch": 2**31},
        {"start_offset": -1},
        {"end_offset": 2**63},
        {"epochs": ((0, 0), (0, 3))},
        {"epochs": ((0, 3), (1, 0))},
        {"epochs": ((0, -1),)},
        {"epochs": ((2**31, 0),)},
    )
]


@pytest.mark.parametrize(
    "manifest",
    [
        first_manifest().with_copied(copied(1, 5), []),
        first_manifest().with_copied(copied(0, 5), []).with_copied(copied(6, 8), []),
        first_manifest().with_copied(copied(0, 5), []).next(end_offset=6),
        first_manifest().next(format=2),
        *FORGED,
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ManifestError):
        decode(encode(manifest))


@pytest.mark.parametrize("url", ["http://x/y", "s3://", "file://relative", "/folder"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected file:///FOLDER or s3://BUCKET/PREFIX"):
        open_store(url)


@pytest.mark.parametrize("change", [{"partition": 4}, {"topic_id": UUID(int=8)}, {"number": 6}])
def test_the_manifest_of_another_partition_or_number_is_refused(
    store: ObjectStore, change: dict[str, Any]
) -> None:
    objects = PartitionObjects(store, TOPIC, 3)
    forged = msgspec.structs.replace(first_manifest(), **{"number": 5, **change})
    store.put(objects.path(manifest_name(5)), [encode(forged)])
    with pytest.raises(ManifestError, match="it is manifest"):
        objects.load()
