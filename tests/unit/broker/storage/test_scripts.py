"""The rules of a partition's log: `scripts/`."""

from pathlib import Path

from tests.scripts import Case, cases
from tests.unit.broker.storage.log_site import LogSite


@cases(*sorted((Path(__file__).parent / "scripts").glob("*.txt")))
async def test_script(case: Case, rewrite: bool, tmp_path: Path) -> None:
    site = LogSite(tmp_path / "t-0")
    if not any(line.startswith("open") for line in case.lines):
        site.open()
    await case.play(site, rewrite)
