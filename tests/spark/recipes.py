"""The recipes of docs/recipes.md do what they say, and store nothing twice when Spark repeats batches."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocks import Reader, blocks
from tests.frameworks.java import fetch_jars, jar
from tests.frameworks.registry import running_registry, write_orders
from tests.frameworks.workers import PROGRAMS
from tests.spark.brokers import running_broker
from tests.tidy.house import ROOT

RECIPES = ROOT / "docs" / "recipes.md"
# Spark starts in seconds; a busy machine takes minutes.
_SPARK_SECONDS = 600.0


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.usefixtures("spark")
def test_recipes_give_the_same_rows_when_their_batches_are_repeated(reader: Reader, tmp_path: Path) -> None:
    read = list(blocks(RECIPES))
    for block in read:
        reader.follow(block)
    # As if each driver had been killed between its last write and Spark's note of it.
    noted = [path for folder in tmp_path.glob("checkpoint-*") for path in (folder / "commits").glob("*0*")]
    assert sum(path.name == "0" for path in noted) == 4, noted
    for path in noted:
        path.unlink()
    program = next(block for block in read if block.language == "python")
    reader.follow(program)


def test_a_stream_in_avro_is_a_table_by_the_schemas_of_a_registry(tmp_path: Path) -> None:
    fetch_jars(("spark-avro_", "apicurio-"))
    avro = jar("spark-avro_")
    package, _, version = avro.stem.rpartition("-")
    assert f"org.apache.spark:{package}:{version} " in RECIPES.read_text()
    with (
        running_broker(tmp_path / "data") as broker,
        running_registry(tmp_path / "registry", broker.bootstrap_servers) as registry,
    ):
        settings = {
            **os.environ,
            "KAFKA": broker.bootstrap_servers,
            "REGISTRY": registry,
            "PYSPARK_SUBMIT_ARGS": f"--jars {avro} pyspark-shell",
            "PYTHONPATH": str(ROOT),
        }

        def table() -> list[dict[str, str]]:
            done = subprocess.run(
                [sys.executable, PROGRAMS / "avro_table.py"],
                cwd=tmp_path,
                env=settings,
                capture_output=True,
                text=True,
                timeout=_SPARK_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            return sorted(rows, key=lambda order: order["number"])

        for field_count in range(2):
            asyncio.run(write_orders(broker.bootstrap_servers, registry, field_count))
        assert table() == _orders(40)
        # As if the driver had been killed between the table and Spark's note of the batch.
        (tmp_path / "avro-checkpoint" / "commits" / "0").unlink()
        asyncio.run(write_orders(broker.bootstrap_servers, registry, 2))
        assert table() == _orders(60)


def _orders(count: int) -> list[dict[str, object]]:
    return [
        {"number": number, **{f"field{n}": str(number) for n in range(number // 20)}}
        for number in range(count)
    ]
