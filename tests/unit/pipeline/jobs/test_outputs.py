"""A result that could not be written, or would take files along, is refused before the work."""

from pathlib import Path

import pytest

from tidelog.pipeline.jobs.outputs import check_file, check_folder
from tidelog.pipeline.offsets import OptionError


def test_a_folder_of_results_is_new_or_holds_earlier_ones_only(tmp_path: Path) -> None:
    check_folder("output", str(tmp_path / "new" / "deep"))
    assert list(tmp_path.iterdir()) == []
    for name in ("part-00000-1.snappy.parquet", ".part-00000-1.snappy.parquet.crc", "_SUCCESS", "_temporary"):
        (tmp_path / name).touch()
    check_folder("output", f"file://{tmp_path}/")
    (tmp_path / "thesis.odt").touch()
    with pytest.raises(OptionError, match=r"output: .* would be replaced, but it contains thesis.odt"):
        check_folder("output", str(tmp_path))
    check_folder("output", "s3a://bucket/folder")


def test_the_obstacle_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError, match=r"output: .*file is a file. Name a folder"):
        check_folder("output", str(file))
    for check in (check_folder, check_file):
        with pytest.raises(OptionError, match=r"x: .*below cannot be written: .*Not a directory"):
            check("x", str(file / "below"))
    with pytest.raises(OptionError, match=r"plot: .* is a folder. Name a file"):
        check_file("plot", str(tmp_path))
    check_file("plot", str(file))
    check_file("plot", str(tmp_path / "new" / "plot.png"))
