"""The objects of one partition: TOPIC_ID/PARTITION/NAME.

Owns which of them counts: the manifest with the highest number, and what it names. Blocking; raises OSError.

Compare-and-set: manifest N+1 is put only if there is none of this number, by who knows N. Older ones are
deleted, so a writer that knows a very old N may put the next number again; it finds the later ones when it
lists, before it treats its own manifest as valid. Nobody else takes it: each later manifest was put before
that.

Invariants: after `commit` returned, the manifest is durable and counts; a crash at any point leaves the
manifest before or after, and objects that no manifest names, which `sweep` deletes.
"""

from collections.abc import Sequence
from uuid import UUID

from tidelog.remote_log.manifest import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MOST_MANIFEST_BYTES,
    Manifest,
    ManifestError,
    decode,
    encode,
    manifest_name,
    manifest_number,
)
from tidelog.remote_log.object_names import too_large
from tidelog.remote_log.object_store import ObjectStore

_LOADS = 5


class ManifestConflictError(Exception):
    """Another manifest counts than the one that was to be replaced."""


class PartitionObjects:
    def __init__(self, store: ObjectStore, topic_id: UUID, partition: int) -> None:
        self.store = store
        self._folder = f"{topic_id}/{partition}"

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _names(self) -> list[str]:
        names = (name.removeprefix(f"{self._folder}/") for name in self.store.names(self._folder))
        return [name for name in names if "/" not in name]

    def _numbers(self) -> list[int]:
        return sorted(number for name in self._names() if (number := manifest_number(name)) is not None)

    def load(self) -> Manifest | None:
        """The manifest that counts; None if nothing was ever put. Raises ManifestError too."""
        for _ in range(_LOADS):
            numbers = self._numbers()
            if not numbers:
                return None
            try:
                data = self.store.get(self.path(manifest_name(numbers[-1])), MOST_MANIFEST_BYTES)
            except FileNotFoundError:
                continue  # A later one came meanwhile.
            try:
                return self._checked(decode(data), numbers[-1])
            except ManifestError as error:
                raise ManifestError(f"{self.path(manifest_name(numbers[-1]))}: {error}") from None
        raise OSError(f"{self._folder}: the manifest changed at each of {_LOADS} attempts to read it")

    def _checked(self, manifest: Manifest, number: int) -> Manifest:
        """Raises ManifestError for one of another partition, or with another number."""
        own = f"{manifest.topic_id}/{manifest.partition}"
        if own != self._folder or manifest.number != number:
            raise ManifestError(f"it is manifest {manifest.number} of {own}")
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Make `manifest` the valid one. Raises ManifestConflictError.

        After an OSError it may count, or may later: `load` again.
        """
        name, data = self.path(manifest_name(manifest.number)), encode(manifest)
        if len(data) > MOST_MANIFEST_BYTES:
            raise too_large(
                f"{name}, with {len(manifest.segments)} segments,", len(data), MOST_MANIFEST_BYTES
            )
        # A request that was repeated may find what it put itself.
        is_ours = self.store.put_new(name, data) or self.store.get(name, MOST_MANIFEST_BYTES) == data
        numbers = self._numbers()
        if not numbers or numbers[-1] < manifest.number:
            raise _forgotten(name)
        if not is_ours or numbers[-1] != manifest.number:
            raise ManifestConflictError(f"{name}: another leader was first, up to {numbers[-1]}")
        self.store.delete([self.path(manifest_name(each)) for each in numbers if each < manifest.number - 1])

    def require(self, name: str, size: int) -> None:
        """Raises OSError if the store does not have this object of so many bytes, which it accepted."""
        path = self.path(name)
        try:
            if not size or len(self.store.get_range(path, size - 1, 1)):
                return
        except FileNotFoundError:
            pass
        raise _forgotten(path)

    def delete_segments(self, names: Sequence[str]) -> None:
        """Delete the objects of segments that no manifest names any more."""
        self.store.delete([self.path(name + suffix) for name in names for suffix in _SUFFIXES])

    def unnamed(self, manifest: Manifest | None) -> list[str]:
        """The objects that the manifest does not name, except it and its predecessor."""
        named: set[str] = set()
        if manifest is not None:
            named |= {each.name + suffix for each in manifest.segments for suffix in _SUFFIXES}
            named |= {manifest_name(manifest.number), manifest_name(manifest.number - 1)}
        return [name for name in self._names() if name not in named]

    def sweep(self, manifest: Manifest) -> int:
        """Delete what the manifest does not name; only its writer may call this, while it copies nothing.
        Returns how many objects there were. Raises ManifestConflictError if a later one counts: its writer
        put that before anything else, so a list shows it beside any object of that writer."""
        left = self.unnamed(manifest)
        if any((manifest_number(name) or 0) > manifest.number for name in left):
            raise ManifestConflictError(f"{self._folder}: a later manifest than {manifest.number} counts")
        self.store.delete([self.path(name) for name in left])
        return len(left)

    def delete_all(self) -> None:
        """Delete every object, manifests last."""
        names = self._names()
        self.store.delete([self.path(name) for name in names if manifest_number(name) is None])
        self.store.delete([self.path(name) for name in names if manifest_number(name) is not None])


def _forgotten(name: str) -> OSError:
    return OSError(f"{name}: the store does not have what it accepted")


_SUFFIXES = (LOG_SUFFIX, INDEXES_SUFFIX)
