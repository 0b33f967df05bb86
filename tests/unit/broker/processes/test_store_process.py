"""The store of several processes opens what was put back from a backup."""

from pathlib import Path

import pytest

from tests.unit.broker.processes.test_moves import PARTITIONS, TOPIC_ID, catalog, make_partition
from tests.unit.broker.storage.support import batch
from tidelog.broker.cluster.choice import copy_path
from tidelog.broker.cluster.facts import StoredCluster
from tidelog.broker.cluster.sqlite_store import write_store
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.catalog_rebuilding import CatalogRebuilding
from tidelog.broker.processes.store_process import settled_store
from tidelog.broker.storage.checkpoints import PRODUCER_IDS_BOUND, write_number
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.broker.storage.process_folders import folder_of

KNOWN = 5000
"""A producer id that the last process knows to be given, and no other process does."""


@pytest.fixture(params=["a log knows it", "a note of reserved ids knows it"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> BrokerConfig:
    """An older catalog beside the folders of two processes."""
    data_dir, is_in_log = tmp_path, request.param == "a log knows it"
    for index in range(PARTITIONS):
        contents = batch(KNOWN if is_in_log and index == PARTITIONS - 1 else 0)
        make_partition(folder_of(data_dir, index % 2), f"t-{index}", TOPIC_ID, contents)
    if not is_in_log:
        write_number(Disk(), folder_of(data_dir, 1) / PRODUCER_IDS_BOUND, KNOWN + 1)
    write_store(data_dir / STORE_FILE, StoredCluster(catalog(2), 1))
    return BrokerConfig(node_id=1, data_dir=data_dir)


async def test_no_process_gives_a_producer_id_that_any_process_knows(config: BrokerConfig) -> None:
    copy_path(config.data_dir / STORE_FILE).unlink()
    (config.data_dir / CLEAN_SHUTDOWN).touch()
    store = await settled_store(config, 2)
    assert (await store.load()).next_producer_id > KNOWN
    assert store.is_newest
    await store.close()


def test_a_catalog_that_is_behind_any_process_is_rebuilt(config: BrokerConfig) -> None:
    rebuilding = CatalogRebuilding(config.data_dir)
    rebuilt = rebuilding.plan()
    assert rebuilt.is_needed
    rebuilding.write(rebuilt)
    assert rebuilt.cluster.catalog.next_producer_id > KNOWN
    assert not CatalogRebuilding(config.data_dir).plan().is_needed
