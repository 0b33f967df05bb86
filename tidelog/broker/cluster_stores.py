"""The store that a broker's settings name.

Owns the choice. Invariant: what another store needs is imported only if the settings name it, so a broker
with its catalog in the data folder starts as fast as without the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import ClusterStore, StoreError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.cluster_settings import ETCD, UNIX

if TYPE_CHECKING:
    from tidelog.broker.cluster.etcd_store import EtcdStore

STORE_FILE = "cluster.db"


def store_of(config: BrokerConfig, *, may_begin: bool, was_clean: bool) -> ClusterStore:
    """`may_begin`: whether there may be no catalog yet; `was_clean`: the last broker was stopped, not killed.

    Raises StoreError for files of TLS that cannot be used.
    """
    if config.cluster_store.startswith(ETCD):
        return etcd_store_of(config, may_begin=may_begin)
    if config.cluster_store:
        from tidelog.broker.cluster.remote_store import RemoteStore

        return RemoteStore(Path(config.cluster_store.removeprefix(UNIX)))
    return SqliteStore(
        config.data_dir / STORE_FILE,
        node_id=config.node_id,
        cluster_id=config.cluster_id or None,
        may_begin=may_begin,
        was_clean=was_clean,
    )


def etcd_store_of(config: BrokerConfig, *, may_begin: bool) -> EtcdStore:
    """Raises StoreError for files of TLS that cannot be used."""
    import ssl

    from tidelog.broker.cluster.etcd_client import EtcdClient
    from tidelog.broker.cluster.etcd_store import EtcdStore

    context = None
    if "https:" in config.cluster_store:
        try:
            context = ssl.create_default_context(cafile=config.cluster_store_ssl_truststore_location or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if config.cluster_store_ssl_keystore_location:
                context.load_cert_chain(config.cluster_store_ssl_keystore_location, password="")
        except (OSError, ValueError) as error:
            raise StoreError(
                "cluster.store.ssl.truststore.location, cluster.store.ssl.keystore.location: expected PEM "
                f"files that can be read and have no password: {error}"
            ) from error
    client = EtcdClient(
        config.cluster_store.removeprefix(ETCD).split(","),
        user=config.cluster_store_user,
        password=config.cluster_store_password,
        ssl_context=context,
    )
    return EtcdStore(
        client,
        node_id=config.node_id,
        prefix=config.cluster_store_prefix,
        cluster_id=config.cluster_id or None,
        may_begin=may_begin,
        session_timeout_ms=config.broker_session_timeout_ms,
    )
