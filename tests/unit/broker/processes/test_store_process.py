"""The store of several processes opens what was put back from a backup."""

from pathlib import Path

from tests.unit.broker.processes.test_moves import PARTITIONS, TOPIC_ID, catalog, make_partition
from tests.unit.broker.storage.support import batch
from tidelog.broker.cluster.choice import copy_path
from tidelog.broker.cluster.facts import StoredCluster
from tidelog.broker.cluster.sqlite_store import write_store
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.catalog_rebuilding import CatalogRebuilding
from tidelog.broker.processes.store_process import settled_store
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.broker.storage.process_folders import folder_of

KNOWN = 5000
"""A producer id that a log of the last process knows, and no other process does."""


def put_back(data_dir: Path) -> BrokerConfig:
    """An older catalog beside the folders of two processes."""
    for index in range(PARTITIONS):
        contents = batch(KNOWN) if index == PARTITIONS - 1 else b""
        make_partition(folder_of(data_dir, index % 2), f"t-{index}", TOPIC_ID, contents)
    write_store(data_dir / STORE_FILE, StoredCluster(catalog(2), 1))
    return BrokerConfig(node_id=1, data_dir=data_dir)


async def test_no_process_gives_a_producer_id_that_a_log_of_any_process_knows(tmp_path: Path) -> None:
    config = put_back(tmp_path)
    copy_path(tmp_path / STORE_FILE).unlink()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    store = await settled_store(config, 2)
    assert (await store.load()).next_producer_id > KNOWN
    assert store.is_newest
    await store.close()


def test_a_catalog_that_is_behind_the_logs_of_any_process_is_rebuilt(tmp_path: Path) -> None:
    put_back(tmp_path)
    rebuilding = CatalogRebuilding(tmp_path)
    rebuilt = rebuilding.plan()
    assert rebuilt.is_needed
    rebuilding.write(rebuilt)
    assert rebuilt.cluster.catalog.next_producer_id > KNOWN
    assert not CatalogRebuilding(tmp_path).plan().is_needed
