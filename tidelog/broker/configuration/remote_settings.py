"""The settings of remote storage: names, defaults and the meaning of each.

Owns `RemoteSettings`, a part of the table of a broker's settings (`broker_config`). Names that Kafka has are
Kafka's. Pure.
"""

from dataclasses import dataclass

from tidelog.protocol.settings import ConfigError, int32_setting, int64_setting
from tidelog.protocol.settings import setting as _setting


def check_remote_storage(is_enabled: bool, url: str) -> None:
    """Raise ConfigError if remote storage is enabled without a place."""
    if is_enabled and not url:
        raise ConfigError(
            "remote.log.storage.system.enable needs remote.storage.url: set it to s3://BUCKET/PREFIX or "
            "file:///FOLDER"
        )


def _url(value: object) -> str:
    if isinstance(value, str) and (not value or value.startswith(("s3://", "file:///"))):
        return value
    raise ConfigError(f"remote.storage.url: expected s3://BUCKET/PREFIX or file:///FOLDER, got {value!r}")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RemoteSettings:
    """Part of `BrokerConfig`, which checks the values and has the generated methods."""

    remote_log_storage_system_enable: bool = _setting(
        False, "Whether topics may keep closed segments in remote storage, see Tiered storage."
    )
    remote_storage_url: str = _setting(
        "",
        "Where remote segments are: s3://BUCKET/PREFIX, or file:///FOLDER. All brokers of a cluster "
        "need the same. Credentials of a bucket come from the environment (AWS_ACCESS_KEY_ID and others) or "
        "the role of the machine.",
        read=_url,
    )
    remote_storage_endpoint: str = _setting("", "URL of a store with S3's protocol. Empty: Amazon's.")
    remote_storage_region: str = _setting("", "Region of the bucket. Empty: AWS_REGION, else us-east-1.")
    remote_storage_request_timeout_ms: int = int32_setting(
        30_000, "Time after which a request to the store has failed. It is repeated twice.", low=100
    )
    remote_log_manager_task_interval_ms: int = int64_setting(
        30_000, "How often to look for segments to copy to remote storage, or to delete there.", low=1
    )
    remote_log_reader_threads: int = int32_setting(10, "Threads that read remote segments.", low=1)
    remote_log_reader_max_pending_tasks: int = int32_setting(
        100,
        "Reads of remote segments that may wait. A Fetch that needs one more gets a retriable error.",
        low=1,
    )
    remote_fetch_max_wait_ms: int = int32_setting(
        500, "Longest time that a Fetch waits for remote storage. Later data serves the next Fetch.", low=1
    )
    remote_fetch_cache_bytes: int = int64_setting(
        64 << 20, "Memory for parts of remote segments that were read, in blocks of 4 MiB.", low=0
    )
    remote_log_index_file_cache_total_size_bytes: int = int64_setting(
        32 << 20, "Memory for the indexes of remote segments. Those of a full segment take up to 5 MB.", low=0
    )
