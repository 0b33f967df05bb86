"""Damage that is found, named by file and byte, and nothing else: `damage.txt`."""

from pathlib import Path

from tests.scripts import Case, cases
from tests.unit.broker.storage.verification.damaged import Folder, Site


@cases(Path(__file__).parent / "damage.txt")
async def test_damage(case: Case, rewrite: bool, folder: Folder) -> None:
    await case.play(Site(folder), rewrite)
