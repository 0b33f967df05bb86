"""Where a job puts its results. Whether it can is checked before the work.

Owns the rule what may be replaced: a folder that contains an earlier result of Spark's and nothing else, so
that a wrong folder loses no files. Paths that are not of this machine are left to Spark.
"""

import re
import tempfile
from pathlib import Path

from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.paths import local_path

# What Spark leaves of a result, finished or not.
_OF_RESULTS = re.compile(r"\.?(part-.*|_SUCCESS.*)|_temporary|\.spark-staging.*")


def check_folder(name: str, text: str) -> None:
    """Raises OptionError if the setting `name` names no folder that a result can be written to."""
    if (path := local_path(text)) is None:
        return
    if not _check_parents(name, path):
        return
    if not path.is_dir():
        raise OptionError(f"{name}: {path} is a file. Name a folder")
    for each in path.iterdir():
        if not _OF_RESULTS.fullmatch(each.name):
            raise OptionError(
                f"{name}: {path} would be replaced, but it contains {each.name}, which is not part of an"
                " earlier result. Name a new folder, or empty this one"
            )


def check_file(name: str, text: str) -> None:
    """Raises OptionError if the setting `name` names no file that can be written."""
    path = Path(text)
    if _check_parents(name, path) and not path.is_file():
        raise OptionError(f"{name}: {path} is a folder. Name a file in it")


def _check_parents(name: str, path: Path) -> bool:
    """Whether `path` exists. Raises OptionError if nothing can be made in the nearest folder above it."""
    folder = next(each for each in path.absolute().parents if each.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return path.exists()
    except OSError as error:
        raise OptionError(f"{name}: {path} cannot be written: {folder}: {error.strerror or error}") from None
