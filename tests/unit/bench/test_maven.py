"""A program's jars are those that the POMs of its group name, each whole, and kept for the next time."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.targets.maven import FetchError, fetch_program

JACKSON = "com/fasterxml/jackson/core/jackson-"
JARS = (
    "a/main/1/main-1",
    "a/part/1/part-1",
    f"{JACKSON}databind/2.21.7/jackson-databind-2.21.7",
    f"{JACKSON}core/2.21.7/jackson-core-2.21.7",
    f"{JACKSON}annotations/2.21/jackson-annotations-2.21",
)


def pom(*dependencies: tuple[str, str, str, str]) -> bytes:
    parts = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<scope>{scope}</scope></dependency>"
        for group, name, version, scope in dependencies
    )
    head = '<project xmlns="http://maven.apache.org/POM/4.0.0">'
    return f"{head}<dependencies>{parts}</dependencies></project>".encode()


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[[], list[str]]:
    """Fetches the program from a repository in a folder, and names its jars."""
    databind = ("com.fasterxml.jackson.core", "jackson-databind", "2.21.7", "runtime")
    files = {
        "a/main/1/main-1.pom": pom(("a", "part", "1", "compile"), ("b", "test", "1", "test")),
        "a/part/1/part-1.pom": pom(("a", "main", "1", "compile"), databind),
    }
    files |= {f"{name}.jar": name.encode() for name in JARS}
    files |= {f"{name}.jar.sha1": hashlib.sha1(name.encode()).hexdigest().encode() for name in JARS}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return lambda: [path.name for path in fetch_program("a:main:1", tmp_path / "jars", tmp_path.as_uri())]


def test_every_part_is_fetched_once(fetch: Callable[[], list[str]], tmp_path: Path) -> None:
    expected = sorted(f"{Path(name).name}.jar" for name in JARS)
    assert fetch() == expected
    shutil.rmtree(tmp_path / "a")
    assert fetch() == expected


def test_what_cannot_be_had_is_an_error_and_nothing_damaged_is_kept(
    fetch: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / f"{JARS[1]}.jar").write_text("damaged")
    with pytest.raises(FetchError, match="another checksum"):
        fetch()
    assert not (tmp_path / "jars" / "part-1.jar").exists()
    (tmp_path / f"{JARS[1]}.jar").unlink()
    with pytest.raises(FetchError, match="No such file"):
        fetch()
