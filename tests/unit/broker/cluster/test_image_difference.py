"""The difference of two images: applied to the older one, it gives the newer one."""

import random
from collections.abc import Sequence
from itertools import combinations
from uuid import UUID

from tests.unit.broker.cluster.stores import facts_of, fill
from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.image_difference import difference
from tidelog.broker.cluster.sqlite_store import SqliteStore


class Images(SqliteStore):
    """Keeps the image after each commit, and stores nothing."""

    def __init__(self) -> None:
        self.image = Catalog("c")
        self.images = [self.image.copy()]

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        for delta in deltas:
            self.image.apply(delta)
        self.images.append(self.image.copy())


async def test_the_difference_of_any_two_images_leads_from_the_older_to_the_newer_one() -> None:
    store = Images()
    await fill(store, Catalog("c"), random.Random(1))
    for older, newer in combinations(store.images, 2):
        image = older.copy()
        for delta in list(difference(image, newer)):
            image.apply(delta)
        image.revision, image.deleted = newer.revision, newer.deleted
        assert facts_of(image) == facts_of(newer)


def test_equal_images_have_no_difference() -> None:
    assert not list(difference(Catalog("c"), Catalog("c")))
