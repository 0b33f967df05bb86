"""What is read of Spark's checkpoint."""

from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from tests.buckets import bucket_server
from tidelog.pipeline.exactly_once.checkpoint import planned_batch, query_of
from tidelog.pipeline.exactly_once.decision import ExactlyOnceError

PLANNED = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n{"t-0":5}'


def test_a_checkpoint_names_its_query_and_what_was_planned(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"0f5e"}')
    (tmp_path / "offsets").mkdir()
    for batch in (0, 1, 2):
        (tmp_path / "offsets" / str(batch)).write_text(PLANNED % (1000 + batch // 2))
    assert query_of(str(tmp_path)) == "0f5e"
    first, second, third = (planned_batch(str(tmp_path), batch) for batch in (0, 1, 2))
    assert first == second
    assert first.planned_ms == 1000
    assert first.digest != third.digest


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n")
    for read in (lambda: query_of(str(tmp_path)), lambda: planned_batch(str(tmp_path), 0)):
        with pytest.raises(ExactlyOnceError, match="the checkpoint cannot be read at"):
            read()


def test_a_checkpoint_may_be_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with bucket_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = S3FileSystem(endpoint_override=url)
        for name, text in (("metadata", '{"id":"0f5e"}'), ("offsets/3", PLANNED % 1000)):
            with store.open_output_stream(f"bucket/jobs/c/{name}") as file:
                file.write(text.encode())
        for scheme in ("s3", "s3a"):
            folder = f"{scheme}://bucket/jobs/c"
            assert query_of(folder) == "0f5e"
            assert planned_batch(folder, 3).planned_ms == 1000
            with pytest.raises(ExactlyOnceError, match=f"cannot be read at {folder}/offsets/4"):
                planned_batch(folder, 4)
