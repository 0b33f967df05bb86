"""How the catalog is laid out in etcd: its keys, its values, and the transactions that change them.

Owns the names below the prefix:

- `head`: the cluster's id, the revision of the catalog and the nonce of the commit that led to it. Each
  commit and each fence writes it, so a transaction that compares the etcd revision of its last change
  succeeds at most once;
- `journal/REVISION`: the deltas and the nonce of the commit that led to this revision. Watches read only
  these;
- `writer/NODE`: the nonce of the last commit of a broker. It shows whether a commit without an answer is
  stored;
- `image` and `chunk/ID/NUMBER`: the whole catalog at some revision, from which a load begins;
- `session/NODE`: the incarnation of a broker that is alive, with a lease.

Invariants: a commit has three writes whatever it changes, and is as large as its deltas; the journal has each
commit since the image, and some before it, so neither a compaction of etcd nor a watch that was lost for a
while makes a broker load the whole catalog; an image counts once `image` names it, and the same transaction
removes the chunks of all others.

A journal rather than a key per fact: a commit of several topics would exceed the 128 operations that etcd
allows, and a topic of thousands of partitions would be written as a whole when one of its leaders changes.

Pure.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.facts import delta_fields, delta_of, encoded, list_of, text_of, whole_number
from tidelog.broker.cluster.image_lines import first_line, other_lines, read_image
from tidelog.broker.cluster.store import BrokerSession, Commit, SeenCommit, StoreError
from tidelog.protocol.steps import finish

FORMAT: Final = 1
CHUNK_BYTES: Final = 512 << 10
"""A third of the largest request that etcd takes by default, before base64."""
Operation = Mapping[str, object]


class Head(NamedTuple):
    """The key `head`; `changed_at` is the revision of etcd, not of the catalog."""

    cluster_id: str
    revision: int
    changed_at: int
    nonce: str = ""
    """As that of `Commit`."""

    def may_follow(self, seen: SeenCommit) -> bool:
        """Whether a catalog that goes back to this commit may be so far."""
        if self.revision != seen.revision:
            return self.revision > seen.revision
        return seen.may_have(self.nonce)


class ImagePointer(NamedTuple):
    """The key `image`; revision 0 and no chunk: none was written yet."""

    revision: int
    image_id: str
    chunks: int
    changed_at: int


class Layout:
    """Names the keys below one prefix, and builds the transactions that read and change them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix.rstrip('/')}/"
        self.head = self._named("head")
        self.image = self._named("image")
        self.sessions = self._named("session/")
        self.journal = self._named("journal/")
        self._chunks = self._named("chunk/")

    def _named(self, name: str) -> str:
        return self._prefix + name

    def session(self, node_id: int) -> str:
        return f"{self.sessions}{node_id}"

    def writer(self, node_id: int) -> str:
        return self._named(f"writer/{node_id}")

    def entry(self, revision: int) -> str:
        return f"{self.journal}{revision:020d}"

    def chunk(self, image_id: str, number: int) -> str:
        return f"{self._chunks}{image_id}/{number:06d}"

    def entries_after(self, revision: int) -> Operation:
        """The range of the journal behind a revision."""
        return {"key": key(self.entry(revision + 1)), "range_end": after(self.journal)}

    def first_from(self, revision: int) -> Operation:
        """The range of the first entry of the journal at a revision or behind it."""
        return {**self.entries_after(revision - 1), "limit": "1"}

    def new(self, cluster_id: str) -> Operation:
        """The transaction that makes a catalog where none is."""
        return {"compare": [absent(self.head)], "success": [put(self.head, head_value(cluster_id, 0))]}

    def begun(self, cluster_id: str, image: ImagePointer) -> Operation:
        """The transaction that makes a catalog of an image whose chunks are written, where none is."""
        success = [put(self.head, head_value(cluster_id, image.revision)), put(self.image, _pointer(image))]
        return {"compare": [absent(self.head), absent(self.image)], "success": success}

    def commit(
        self, head: Head, deltas: Sequence[Delta], node_id: int, nonce: UUID, without_session: int | None
    ) -> Operation:
        """The transaction that makes deltas durable on top of `head`."""
        revision = head.revision + len(deltas)
        fields = [delta_fields(delta) for delta in deltas]
        entry = {"revision": revision, "deltas": fields, "nonce": nonce.hex}
        compare = [unchanged(self.head, head.changed_at)]
        if without_session is not None:
            compare.append(absent(self.session(without_session)))
        return {
            "compare": compare,
            "success": [
                put(self.head, head_value(head.cluster_id, revision, nonce.hex)),
                put(self.entry(revision), encoded(entry).encode()),
                put(self.writer(node_id), nonce.hex.encode()),
            ],
            "failure": [get(self.head), get(self.writer(node_id))],
        }

    def fence(self, head: Head) -> Operation:
        """The transaction after which no commit on top of `head`, sent earlier, can take effect."""
        value = head_value(head.cluster_id, head.revision, head.nonce)
        return {"compare": [unchanged(self.head, head.changed_at)], "success": [put(self.head, value)]}

    def use_image(self, before: ImagePointer, image: ImagePointer, kept_commits: int) -> Operation:
        """The transaction after which loads begin with an image whose chunks are written."""
        own = f"{self._chunks}{image.image_id}/"
        oldest_kept = max(image.revision - kept_commits, 0)
        return {
            "compare": [unchanged(self.image, before.changed_at)],
            "success": [
                put(self.image, _pointer(image)),
                delete(key(self._chunks), key(own)),
                delete(after(own), after(self._chunks)),
                delete(key(self.journal), key(self.entry(oldest_kept))),
            ],
            "failure": [get(self.image)],
        }

    def without_chunks(self, image_id: str) -> Operation:
        """The range of an image that will not be used."""
        own = f"{self._chunks}{image_id}/"
        return {"key": key(own), "range_end": after(own)}


def key(text: str) -> str:
    """A key as etcd's JSON has it."""
    return base64.b64encode(text.encode()).decode()


def after(text: str) -> str:
    """The end of a range, exclusive, that has all keys which begin with `text`."""
    last = text.encode()
    return base64.b64encode(last[:-1] + bytes([last[-1] + 1])).decode()


def packed(value: bytes) -> str:
    """A value as etcd's JSON has it."""
    return base64.b64encode(value).decode()


def value_of(entry: Mapping[str, Any]) -> bytes:
    """The value of a key that was read."""
    return base64.b64decode(entry.get("value", ""))


def key_of(entry: Mapping[str, Any]) -> str:
    """The name of a key that was read. Raises ValueError."""
    return base64.b64decode(entry["key"]).decode()


def head_value(cluster_id: str, revision: int, nonce: str = "") -> bytes:
    fields = {"format": FORMAT, "cluster_id": cluster_id, "revision": revision}
    return encoded(fields | ({"nonce": nonce} if nonce else {})).encode()


def _pointer(image: ImagePointer) -> bytes:
    return encoded({"revision": image.revision, "id": image.image_id, "chunks": image.chunks}).encode()


def get(name: str) -> Operation:
    return {"request_range": {"key": key(name)}}


def get_range(of: Operation) -> Operation:
    return {"request_range": of}


def put(name: str, value: bytes, lease: int = 0) -> Operation:
    return {"request_put": {"key": key(name), "value": packed(value), "lease": str(lease)}}


def delete(first: str, end: str) -> Operation:
    return {"request_delete_range": {"key": first, "range_end": end}}


def absent(name: str) -> Operation:
    """A comparison: a key does not exist."""
    return {"key": key(name), "target": "VERSION", "result": "EQUAL", "version": "0"}


def unchanged(name: str, changed_at: int) -> Operation:
    """A comparison: the last change of a key, 0 for one that does not exist, was at this revision of etcd."""
    return {"key": key(name), "target": "MOD", "result": "EQUAL", "mod_revision": str(changed_at)}


def found(answer: Mapping[str, Any], number: int) -> Sequence[Mapping[str, Any]]:
    """The keys that the operation `number` of a transaction read."""
    kvs: Sequence[Mapping[str, Any]] = answer["responses"][number].get("response_range", {}).get("kvs", ())
    return kvs


def revision_in(answer: Mapping[str, Any]) -> int:
    """The revision of etcd at which it answered."""
    return int(answer["header"]["revision"])


def head_of(kvs: Sequence[Mapping[str, Any]]) -> Head | None:
    """None if there is no catalog. Raises StoreError for one of another release, ValueError, KeyError."""
    if not kvs:
        return None
    fields = json.loads(value_of(kvs[0]))
    if fields["format"] != FORMAT:
        raise StoreError(
            f"expected a catalog of format {FORMAT} in etcd, got {fields['format']}: another release wrote"
            " it; start that one, or set another cluster.store.prefix"
        )
    cluster_id, revision = text_of(fields["cluster_id"]), whole_number(fields["revision"])
    return Head(cluster_id, revision, int(kvs[0]["mod_revision"]), _nonce_in(fields))


def _nonce_in(fields: Mapping[str, Any]) -> str:
    """Empty where an older release wrote it."""
    return text_of(fields["nonce"]) if "nonce" in fields else ""


def pointer_of(kvs: Sequence[Mapping[str, Any]]) -> ImagePointer:
    """Raises ValueError, KeyError."""
    if not kvs:
        return ImagePointer(0, "", 0, 0)
    fields = json.loads(value_of(kvs[0]))
    revision, chunks = whole_number(fields["revision"]), whole_number(fields["chunks"])
    return ImagePointer(revision, text_of(fields["id"]), chunks, int(kvs[0]["mod_revision"]))


def commit_of(entry: Mapping[str, Any]) -> Commit:
    """The commit of a key of the journal. Raises ValueError, KeyError."""
    fields = json.loads(value_of(entry))
    deltas = tuple(map(delta_of, list_of(fields["deltas"])))
    return Commit(whole_number(fields["revision"]), deltas, _nonce_in(fields))


def has_commit(head: Head | None, first: Commit | None, seen: SeenCommit) -> bool:
    """Whether a catalog goes back to a commit, as far as its journal shows. `first`: the first entry of the
    journal from the commit's revision on."""
    if head is None or not head.may_follow(seen):
        return False
    if first is None or first.revision != seen.revision:
        return first is None or first.revision - len(first.deltas) >= seen.revision
    return seen.may_have(first.nonce)


def session_of(entry: Mapping[str, Any]) -> BrokerSession:
    """The session of a key. Raises ValueError."""
    return BrokerSession(int(key_of(entry).rpartition("/")[2]), UUID(value_of(entry).decode()))


def chunks_of(catalog: Catalog) -> list[bytes]:
    """The text of an image in parts."""
    text = "\n".join(map(encoded, [first_line(catalog), *other_lines(catalog)])).encode()
    return [text[start : start + CHUNK_BYTES] for start in range(0, len(text), CHUNK_BYTES)]


def image_of(chunks: Sequence[bytes]) -> Catalog:
    """The catalog of which these are all chunks. Raises ValueError, KeyError, TypeError."""
    first, *others = b"".join(chunks).split(b"\n")
    catalog: Catalog = finish(read_image(json.loads(first), map(json.loads, others)))
    return catalog
