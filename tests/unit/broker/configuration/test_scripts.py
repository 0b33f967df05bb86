"""What an operator's settings become, or what is said of them: `settings.txt`."""

from pathlib import Path

from tests.scripts import Case, cases
from tests.unit.broker.configuration.site import Site


@cases(Path(__file__).parent / "settings.txt")
async def test_settings(case: Case, rewrite: bool, tmp_path: Path) -> None:
    await case.play(Site(tmp_path), rewrite)
