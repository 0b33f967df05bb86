"""The connector is the newest that Spark can be, with the libraries that its POM names, whole and kept."""

import hashlib
import shutil
from pathlib import Path

import pytest

from bench.targets.maven import FetchError, fetch_connector, fetch_program, newest

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
<version>3.9</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>9</version></dependency>
<dependency><groupId>org.apache.commons</groupId><artifactId>commons-pool2</artifactId>
<version>2.1</version></dependency>
</dependencies></project>"""
CONNECTOR = "org/apache/spark/spark-sql-kafka-0-10_2.13"
HELPER = "org/apache/spark/spark-token-provider-kafka-0-10_2.13"
JARS = (
    f"{CONNECTOR}/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    f"{HELPER}/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9/kafka-clients-3.9.jar",
    "org/apache/commons/commons-pool2/2.1/commons-pool2-2.1.jar",
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    files = {name: name.encode() for name in JARS}
    files |= {f"{name}.sha1": hashlib.sha1(name.encode()).hexdigest().encode() for name in JARS}
    files[f"{CONNECTOR}/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.pom"] = POM.encode()
    for artifact, versions in ((CONNECTOR, ("4.10.0", "4.2.0", "4.1.0")), (HELPER, ("4.0.0", "4.3.0"))):
        listing = "".join(f"<version>{each}</version>" for each in versions)
        files[f"{artifact}/maven-metadata.xml"] = f"<metadata>{listing}</metadata>".encode()
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def fetch(repository: Path, folder: Path, seconds: float = 30) -> list[Path]:
    return fetch_connector(folder, "4.3.0", "2.13", seconds, repository.as_uri())


def test_the_newest_version_is_final_and_not_above_the_limit() -> None:
    assert newest(["4.2.0", "4.10.0", "4.9.1", "4.10.1", "4.10.0-preview2"], "4.10.0") == "4.10.0"
    assert newest(["4.2.0", "4.3.0-preview1"], "4.3.0.dev1") == "4.2.0"
    assert newest(["5.0.0"], "4.3.0") is None


def test_every_part_is_fetched_once(repository: Path, tmp_path: Path) -> None:
    jars = fetch(repository, tmp_path / "jars")
    assert [path.name for path in jars] == [name.rpartition("/")[2] for name in JARS]
    assert [path.read_text() for path in jars] == list(JARS)
    (repository / JARS[2]).unlink()
    assert fetch(repository, tmp_path / "jars") == jars


def test_what_cannot_be_had_is_told(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="takes too long"):
        fetch(repository, tmp_path / "jars", 0)
    (repository / JARS[1]).write_text("damaged")
    with pytest.raises(FetchError, match="another checksum"):
        fetch(repository, tmp_path / "jars")
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [JARS[0].rpartition("/")[2]]
    (repository / JARS[1]).unlink()
    with pytest.raises(FetchError, match="No such file"):
        fetch(repository, tmp_path / "jars")
    (repository / CONNECTOR / "maven-metadata.xml").write_text("<metadata/>")
    with pytest.raises(FetchError, match=r"has no org\.apache\.spark:spark-sql-kafka"):
        fetch(repository, tmp_path / "jars")


def test_a_program_is_fetched_with_all_that_the_poms_of_its_group_name(tmp_path: Path) -> None:
    def named(*dependencies: tuple[str, str, str]) -> bytes:
        parts = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>1</version>"
            f"<scope>{scope}</scope></dependency>"
            for group, name, scope in dependencies
        )
        head, tail = POM.partition("<dependencies>")[0], "</dependencies></project>"
        return f"{head}<dependencies>{parts}{tail}".encode()

    databind = ("com.fasterxml.jackson.core", "jackson-databind", "runtime")
    files = {
        "a/main/1/main-1.pom": named(("a", "part", "compile"), ("b", "test", "test")),
        "a/part/1/part-1.pom": named(("a", "main", "compile"), databind),
    }
    core = "com/fasterxml/jackson/core/jackson-"
    jackson = [f"{core}{name}/1/jackson-{name}-1" for name in ("databind", "core", "annotations")]
    for name in ("a/main/1/main-1", "a/part/1/part-1", *jackson):
        files[f"{name}.jar"] = name.encode()
        files[f"{name}.jar.sha1"] = hashlib.sha1(name.encode()).hexdigest().encode()
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for _ in range(2):
        jars = fetch_program("a:main:1", tmp_path / "jars", tmp_path.as_uri())
        assert {path.name for path in jars} == {Path(name).name for name in files if name.endswith(".jar")}
        shutil.rmtree(tmp_path / "a", ignore_errors=True)  # The second time nothing is fetched.
