"""What the control group of this process lets it hold, and the settings that follow from it.

A container with a memory limit is killed by the kernel when the limit is passed. Limits of parents hold too.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst (memory.max) and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidelog.broker.configuration.broker_config import BrokerConfig

_OWN_BYTES = 64 << 20
"""What the broker needs for itself."""
_LEAST_BYTES = 4 << 20
# A request may be held twice while it is read, and freed memory is not given back at once.
_SHARE = 4
_SOURCE = "the memory limit of the control group"


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The lowest limit of the control groups of this process; None if there is none."""
    limits: list[int] = []
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # The path may be the host's: then a container finds its own group at the mount itself.
        folder = mount / path.lstrip("/")
        while folder.is_relative_to(mount):
            limits.extend(_number(folder / name))
            folder = folder.parent
    return min(limits, default=None)


def _number(file: Path) -> list[int]:
    """The number in a file; nothing if it says `max` or is not there."""
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() else []


def within_limit(config: BrokerConfig, limit_bytes: int | None) -> BrokerConfig:
    """The settings with lower bounds of memory, where the limit asks for them and nobody has set them."""
    if limit_bytes is None:
        return config
    share = max((limit_bytes - _OWN_BYTES) // _SHARE, _LEAST_BYTES)
    lower = {"log_cleaner_dedupe_buffer_size": share}
    if not config.is_set("queued.max.bytes") and not config.is_set("socket.request.max.bytes"):
        lower |= {"queued_max_bytes": share, "socket_request_max_bytes": share // 2}
    changed = {
        name: bound
        for name, bound in lower.items()
        if name not in config.sources and bound < getattr(config, name)
    }
    return replace(config, **changed, sources={**config.sources, **dict.fromkeys(changed, _SOURCE)})  # type: ignore[arg-type]
