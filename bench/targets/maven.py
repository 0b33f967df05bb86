"""Programs for Java from Maven Central: Apache Kafka, its tools, and Spark's own Kafka connector.

Owns which jars these are, and a folder for each that keeps them for the next time. A program's jars are those
that the POMs of its own group name. A file appears in its folder only when it is whole and has the
repository's checksum. Any failure is a FetchError with the reason, and every step has a time limit.
"""

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bench.targets.process import TargetError

REPOSITORY = "https://repo1.maven.org/maven2"
_JACKSON = "com.fasterxml.jackson.core:jackson-"
_CACHE = Path.home() / ".cache" / "tidelog"
_COMPLETE = "complete"
_POM = {"pom": "http://maven.apache.org/POM/4.0.0"}
_STEP_SECONDS = 5.0
_PROGRAM_SECONDS = 180.0
_CHUNK = 1 << 20


class FetchError(TargetError):
    """The jars are not to be had here; the message says why."""


def fetch_program(program: str, cache: Path = _CACHE, repository: str = REPOSITORY) -> list[Path]:
    """The jars of `program` (group:name:version), from the network only the first time. Raises FetchError."""
    folder = cache / "-".join(program.split(":")[1:])
    if not (folder / _COMPLETE).exists():
        source = _Repository(repository, folder, time.monotonic() + _PROGRAM_SECONDS)
        try:
            for artifact in source.closure(program):
                source.jar(artifact)
        except (OSError, http.client.HTTPException, ElementTree.ParseError, ValueError) as error:
            raise FetchError(f"{repository}: {error}") from error
        (folder / _COMPLETE).touch()
    return sorted(folder.glob("*.jar"))


class _Repository:
    """A Maven repository, read until `deadline`. Coordinates are group:artifact[:version]."""

    def __init__(self, url: str, folder: Path, deadline: float) -> None:
        self._url, self._folder, self._deadline = url, folder, deadline

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
            if name == f"{_JACKSON}databind":  # Its POM, of another group, names these two.
                # The annotations have had no patch versions since 2.20.
                minor = re.sub(r"^(2\.2\d)\..*", r"\1", version)
                waiting += [f"{_JACKSON}core:{version}", f"{_JACKSON}annotations:{minor}"]
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
                raise FetchError(f"{self._url}/{file} has another checksum than it should have")
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
            raise FetchError(f"{self._url}/{file}: {error}") from error
        return b"".join(chunks)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise FetchError(f"{self._url} takes too long")
        return min(left, _STEP_SECONDS)


def _path(artifact: str) -> str:
    group, *rest = artifact.split(":")
    return "/".join([group.replace(".", "/"), *rest])


def _file(artifact: str, suffix: str) -> str:
    _, name, version = artifact.split(":")
    return f"{_path(artifact)}/{name}-{version}.{suffix}"
