"""Kafka's own programs in Java, and a schema registry: the jars of `jars.lock` from Maven Central, and how
they are started.

The jars are kept below the virtual environment. Each is checked against its SHA-256 before it gets its name.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from bench.targets.maven import REPOSITORY
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS
from tidelog.pipeline.spark.java import find_java

_HERE = Path(__file__).parent
_FOLDER = Path(sys.prefix) / "frameworks-java"
_REGISTRY = "apicurio"
_COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"

JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
TERMINATED = 128 + 15
"""The exit code of a Java program that ended in good order after SIGTERM."""


class MavenNotReachedError(RuntimeError):
    """The jars could not be fetched, so nothing in Java was run."""


def fetch_jars(names: str | tuple[str, ...] = "") -> None:
    """Fetch the jars that are not there yet: all, or those whose file names begin so."""
    (_FOLDER / "jars").mkdir(parents=True, exist_ok=True)
    for line in (_HERE / "jars.lock").read_text().splitlines():
        if not line.startswith("#") and line.rpartition("/")[2].startswith(names):
            _fetch(*line.split())


def compile_programs() -> None:
    """Compile the program of Kafka Streams, and what a connector needs."""
    sources = map(str, (_HERE / "programs" / "AppInfoParser.java", ROOT / "examples" / "Billing.java"))
    compiler = java(
        _COMPILER, "-17", "-nowarn", "-d", str(_FOLDER / "classes"), "-cp", class_path(), *sources
    )
    subprocess.run(compiler, check=True)


def java(program: str, *arguments: str, classes: str = "") -> tuple[str, ...]:
    """The command that runs a class of the jars, or one that was compiled."""
    command = (str(find_java().home / "bin" / "java"), *JAVA_OPTIONS, "-cp", classes or class_path())
    return (*command, program, *arguments)


def registry_command() -> tuple[str, ...]:
    """The command that runs Apicurio Registry."""
    return java(
        "io.quarkus.runner.GeneratedMain",
        classes=os.pathsep.join([str(_FOLDER / _REGISTRY / "*"), str(_FOLDER / _REGISTRY / "lib" / "*")]),
    )


def jar(name: str) -> Path:
    """The jar whose file name begins so."""
    return next((_FOLDER / "jars").glob(f"{name}*.jar"))


def plugin_path() -> str:
    """Where Kafka Connect looks for connectors."""
    return str(_FOLDER / "jars")


def class_path() -> str:
    """All jars, and what was compiled."""
    return os.pathsep.join([str(_FOLDER / "classes"), *map(str, sorted((_FOLDER / "jars").glob("*.jar")))])


def _fetch(sha256: str, path: str) -> None:
    jar = _FOLDER / "jars" / path.rpartition("/")[2]
    if jar.exists():
        return
    try:
        with urllib.request.urlopen(f"{REPOSITORY}/{path}", timeout=DEADLINE_SECONDS) as answer:
            content = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise MavenNotReachedError(
            f"{REPOSITORY}/{path}: {error}. Kafka Streams, Kafka Connect, Kafka's command line tools and the "
            "schema registry were left out: they need Maven Central"
        ) from error
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise MavenNotReachedError(f"{REPOSITORY}/{path} has the SHA-256 {found}, expected {sha256}")
    if path.endswith(".tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(_FOLDER / _REGISTRY)  # Its content is what the lock file expects.
    part = jar.with_suffix(f".{os.getpid()}")
    part.write_bytes(content)
    part.replace(jar)
