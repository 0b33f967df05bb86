"""A sound data folder, made once, and a copy of it for each test to damage."""

import shutil
from pathlib import Path

import pytest

from tests.unit.broker.storage.verification.damaged import Folder, sound_folder


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "data"
    sound_folder(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Folder:
    shutil.copytree(sound, tmp_path / "data")
    return Folder(tmp_path / "data")
