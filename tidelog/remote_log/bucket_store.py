"""Objects in a bucket of S3, or of a store with its protocol.

Owns the use of obstore. Credentials come from where obstore takes them: AWS_ACCESS_KEY_ID and the other
variables of the environment, or the role of the machine.

Invariant: a call ends within a few times the timeout of a request, and every failure is an OSError.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from tidelog.protocol.types import Buffer
from tidelog.remote_log.object_names import check_names, is_name, too_large

_PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 2
_RETRIES = 2


class BucketStore:
    """Keeps objects in a bucket of S3. Implements `ObjectStore`."""

    def __init__(self, url: str, endpoint: str, region: str, timeout_ms: int) -> None:
        timeout = timedelta(milliseconds=timeout_ms)
        config: Any = {"region": region or os.environ.get("AWS_REGION", "us-east-1")}
        if endpoint:
            config["endpoint"] = endpoint
        self._url = url
        self._store = S3Store.from_url(
            url,
            config=config,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timeout,
                "timeout": timeout,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timeout},
        )

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        check_names(name)
        try:
            yield
        except BaseError as error:
            what = str(error).partition("\n")[0]
            raise OSError(errno.EIO, f"{self._url}: {name}: {what}") from error

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        with self._failing(name):
            obstore.put(
                self._store, name, map(bytes, pieces), chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )

    def put_new(self, name: str, data: bytes) -> bool:
        with self._failing(name):
            try:
                obstore.put(self._store, name, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def get(self, name: str, most_bytes: int) -> bytes:
        with self._failing(name):
            found = obstore.get(self._store, name)
            if found.meta["size"] > most_bytes:
                raise too_large(f"{self._url}: {name}", found.meta["size"], most_bytes)
            return bytes(found.bytes())

    def get_range(self, name: str, position: int, size: int) -> Buffer:
        with self._failing(name):
            return memoryview(obstore.get_range(self._store, name, start=position, length=size))

    def names(self, folder: str) -> list[str]:
        with self._failing(folder):
            return [
                each["path"]
                for page in obstore.list(self._store, folder)
                for each in page
                if is_name(each["path"])
            ]

    def delete(self, names: Sequence[str]) -> None:
        check_names(*names)
        if names:
            with self._failing(names[0]):
                obstore.delete(self._store, list(names))
