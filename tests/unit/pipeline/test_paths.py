"""Folders that options and settings name: as a path or a file: URI, in any other way not at all."""

from pathlib import Path

import pytest

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.paths import shared_folder


def test_a_folder_is_named_as_a_path_or_a_file_uri() -> None:
    for text in ("file:///data/archive", "file:/data/archive", "/data/archive"):
        assert shared_folder("path", text) == Path("/data/archive")
    assert shared_folder("path", "relative") == Path.cwd() / "relative"
    with pytest.raises(OptionError, match="path: s3://bucket/archive is not a path"):
        shared_folder("path", "s3://bucket/archive")
