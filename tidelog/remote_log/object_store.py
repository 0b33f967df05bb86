"""Where objects are: a folder or a bucket, by its URL.

Owns the interface and the choice of the implementation. `object_names` has the form of names.

Invariants of each implementation: an object is whole or not there, and durable when the call that puts it
returns; `names` shows each object that was put before; a name of another form is refused, and what has one in
the store is not shown, so nothing outside the store is read, written or deleted. All calls block, may be made
in any thread, and raise OSError; FileNotFoundError means that there is no such object.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tidelog.protocol.types import Buffer

FOLDER = "file://"
BUCKET = "s3://"


class ObjectStore(Protocol):
    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Put an object that has no other writer."""
        ...

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object unless there is one of this name; whether it was put."""
        ...

    def get(self, name: str, most_bytes: int) -> bytes:
        """The whole object. OSError if it has more bytes."""
        ...

    def get_range(self, name: str, position: int, size: int) -> Buffer:
        """As many of these bytes as the object has."""
        ...

    def names(self, folder: str) -> list[str]:
        """The objects in a folder and in those in it, whole names; none where there is no such folder."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Those that are not there are gone already."""
        ...


def open_store(url: str, *, endpoint: str = "", region: str = "", timeout_ms: int = 30_000) -> ObjectStore:
    """The store of a URL: file:///FOLDER, or s3://BUCKET/PREFIX. Raises ValueError for any other, and for a
    bucket where obstore is not installed."""
    if url.startswith(FOLDER) and (path := unquote(urlsplit(url).path)).startswith("/"):
        from tidelog.remote_log.folder_store import FolderStore

        return FolderStore(Path(path))
    if url.startswith(BUCKET) and urlsplit(url).netloc:
        try:
            from tidelog.remote_log.bucket_store import BucketStore
        except ImportError:
            raise ValueError(f"{url} needs obstore, which is not installed: pip install obstore") from None
        return BucketStore(url, endpoint, region, timeout_ms)
    raise ValueError(f"expected file:///FOLDER or s3://BUCKET/PREFIX, got {url!r}")
