"""What clients are answered, and what is then so: `scripts/`, and `share_scripts/` of share groups."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import Case, cases
from tests.unit.broker.handlers.share_site import ShareSite
from tests.unit.broker.handlers.site import Site
from tidelog.broker.observability import log_events


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    yield
    for logger in log_events.own_levels():
        log_events.unset_level(logger)
    log_events.set_level("INFO")


async def play(site: Site, case: Case, rewrite: bool) -> None:
    if not any(line.startswith("open") for line in case.lines):
        await site.open()
    await case.play(site, rewrite)


@cases(*sorted((Path(__file__).parent / "scripts").glob("*.txt")))
async def test_script(case: Case, rewrite: bool, open_asker: Callable[..., Any]) -> None:
    await play(Site(open_asker), case, rewrite)


@cases(*sorted((Path(__file__).parent / "share_scripts").glob("*.txt")))
async def test_share_script(case: Case, rewrite: bool, open_asker: Callable[..., Any]) -> None:
    await play(ShareSite(open_asker), case, rewrite)
