"""Programs for Java from Maven Central: Spark's own Kafka connector, and Apache Kafka itself.

Owns which jars these are, and a folder that keeps them for the next time. A program's are those that the POMs
of its own group name. The connector is the newest one that the installed Spark can be. It may be one release
behind Spark, since it appears there later; its helper (spark-token-provider) may be older again; the versions
of Kafka's client and of commons-pool2 are those that the connector's own POM names. A file appears in the
folder under its name only when it is whole and has the checksum that the repository tells.

Any trouble is a ConnectorError with the reason; nothing takes longer than it is given.
"""

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = "https://repo1.maven.org/maven2"
_SPARK = "org.apache.spark"
_CONNECTOR = "spark-sql-kafka-0-10_"
_HELPER = "spark-token-provider-kafka-0-10_"
_LIBRARIES = ("org.apache.kafka:kafka-clients", "org.apache.commons:commons-pool2")
_JACKSON = "com.fasterxml.jackson.core:jackson-"
_BESIDE = {f"{_JACKSON}databind": (f"{_JACKSON}core", f"{_JACKSON}annotations")}
"""Named in a POM of another group."""
_POM = {"pom": "http://maven.apache.org/POM/4.0.0"}
_FINAL = re.compile(r"\d+(\.\d+)*")
_STEP_SECONDS = 5.0
_CHUNK = 1 << 20


class ConnectorError(RuntimeError):
    """The jars are not to be had here; the message says why."""


def newest(versions: Iterable[str], limit: str) -> str | None:
    """The newest final version not above `limit`; previews do not count."""
    final = [each for each in versions if _FINAL.fullmatch(each) and _numbers(each) <= _numbers(limit)]
    return max(final, key=_numbers, default=None)


def fetch_connector(
    folder: Path, spark: str, scala: str, seconds: float, repository: str = REPOSITORY
) -> list[Path]:
    """The jars that Spark `spark` (for Scala `scala`, as in "2.13") needs for `format("kafka")`.

    Fetches what `folder` does not hold yet, within `seconds`. Raises ConnectorError.
    """
    source = _Repository(repository, folder, time.monotonic() + seconds)
    try:
        connector = source.newest(f"{_SPARK}:{_CONNECTOR}{scala}", spark)
        helper = source.newest(f"{_SPARK}:{_HELPER}{scala}", connector.rpartition(":")[2])
        return [source.jar(each) for each in (connector, helper, *source.libraries(connector))]
    except (OSError, http.client.HTTPException, ElementTree.ParseError, ValueError) as error:
        raise ConnectorError(f"{repository}: {error}") from error


def fetch_program(
    folder: Path, artifact: str, limit: str, seconds: float, repository: str = REPOSITORY
) -> list[Path]:
    """The jars of the newest `artifact` (group:name) up to version `limit`, within `seconds`.

    Raises ConnectorError.
    """
    source = _Repository(repository, folder, time.monotonic() + seconds)
    try:
        return [source.jar(each) for each in source.closure(source.newest(artifact, limit))]
    except (OSError, http.client.HTTPException, ElementTree.ParseError, ValueError) as error:
        raise ConnectorError(f"{repository}: {error}") from error


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.split("-")[0]))


class _Repository:
    """A Maven repository, read until `deadline`. Coordinates are group:artifact[:version]."""

    def __init__(self, url: str, folder: Path, deadline: float) -> None:
        self._url, self._folder, self._deadline = url, folder, deadline

    def newest(self, artifact: str, limit: str) -> str:
        listing = ElementTree.fromstring(self._read(f"{_path(artifact)}/maven-metadata.xml"))
        found = newest((each.text or "" for each in listing.iter("version")), limit)
        if found is None:
            raise ConnectorError(f"{self._url} has no {artifact} up to version {limit}")
        return f"{artifact}:{found}"

    def libraries(self, connector: str) -> list[str]:
        """The versions of Kafka's client and of what it is pooled with."""
        found = [each for each in self._dependencies(connector) if each.rpartition(":")[0] in _LIBRARIES]
        if len(found) != len(_LIBRARIES):
            raise ConnectorError(f"{connector}: its POM names {found} of {list(_LIBRARIES)}")
        return found

    def closure(self, program: str) -> list[str]:
        """The program and all that it needs, by the POMs of its own group."""
        group = program.split(":")[0]
        found: dict[str, str] = {}
        waiting = [program]
        while waiting:
            artifact = waiting.pop()
            name, _, version = artifact.rpartition(":")
            if name in found:
                continue
            found[name] = artifact
            if artifact.startswith(f"{group}:"):
                waiting += self._dependencies(artifact)
            waiting += [f"{beside}:{version}" for beside in _BESIDE.get(name, ())]
        return list(found.values())

    def _dependencies(self, artifact: str) -> list[str]:
        """What its POM names for running it."""
        pom = ElementTree.fromstring(self._read(_file(artifact, "pom")))
        parts = ("groupId", "artifactId", "version")
        return [
            ":".join(each.findtext(f"pom:{part}", "", _POM) for part in parts)
            for each in pom.findall("pom:dependencies/pom:dependency", _POM)
            if each.findtext("pom:scope", "compile", _POM) in ("compile", "runtime")
        ]

    def jar(self, artifact: str) -> Path:
        file = _file(artifact, "jar")
        path = self._folder / file.rpartition("/")[2]
        if not path.exists():
            content = self._read(file)
            expected = self._read(f"{file}.sha1").split()[0].decode()
            if hashlib.sha1(content, usedforsecurity=False).hexdigest() != expected:
                raise ConnectorError(f"{self._url}/{file} has another checksum than it should have")
            self._folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(content)
            part.replace(path)
        return path

    def _read(self, file: str) -> bytes:
        chunks = []
        try:
            with urllib.request.urlopen(f"{self._url}/{file}", timeout=self._left()) as answer:
                while chunk := answer.read(_CHUNK):
                    chunks.append(chunk)
                    self._left()
        except urllib.error.HTTPError as error:
            raise ConnectorError(f"{self._url}/{file}: {error}") from error
        return b"".join(chunks)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ConnectorError(f"{self._url} takes too long")
        return min(left, _STEP_SECONDS)


def _path(artifact: str) -> str:
    group, *rest = artifact.split(":")
    return "/".join([group.replace(".", "/"), *rest])


def _file(artifact: str, suffix: str) -> str:
    _, name, version = artifact.split(":")
    return f"{_path(artifact)}/{name}-{version}.{suffix}"
