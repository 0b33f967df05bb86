"""Bounds of memory follow the limit of the control group, unless somebody has set them."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.memory_limit import memory_limit_bytes, within_limit

_MIB = 1 << 20
_NO_LIMIT_OF_VERSION_1 = 9223372036854771712


def machine(root: Path, groups: str, **limits: str) -> Path:
    """A file system with these control groups; `limits` are files below /sys/fs/cgroup."""
    for path, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{k}": v for k, v in limits.items()},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/", {"memory.max": "134217728"}, 128 * _MIB),
        ("0::/", {"memory.max": "max"}, None),
        ("0::/", {}, None),
        (
            "0::/system.slice/tidelog.service",
            {
                "system.slice/tidelog.service/memory.max": "max",
                "system.slice/memory.max": "268435456",
                "memory.max": "536870912",
            },
            256 * _MIB,
        ),
        (
            "5:cpu:/docker/1\n4:memory:/docker/1\n0::/docker/1",
            {"memory/memory.limit_in_bytes": "134217728"},
            128 * _MIB,
        ),
        (
            "4:memory,hugetlb:/a",
            {"memory/a/memory.limit_in_bytes": str(_NO_LIMIT_OF_VERSION_1)},
            _NO_LIMIT_OF_VERSION_1,
        ),
    ],
)
def test_the_lowest_limit_of_a_group_and_its_parents_holds(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    assert memory_limit_bytes(machine(tmp_path, groups, **limits)) == expected


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) is None


def bounds(config: BrokerConfig) -> tuple[int, int, int]:
    """Requests, one request, keys of the cleaner."""
    return config.queued_max_bytes, config.socket_request_max_bytes, config.log_cleaner_dedupe_buffer_size


def test_a_quarter_of_what_the_broker_does_not_need_for_itself_is_held_for_clients() -> None:
    config = within_limit(BrokerConfig(), 128 * _MIB)
    assert bounds(config) == (16 * _MIB, 8 * _MIB, 16 * _MIB)
    assert config.sources["queued_max_bytes"] == "the memory limit of the control group"
    assert bounds(within_limit(BrokerConfig(), 32 * _MIB)) == (4 * _MIB, 2 * _MIB, 4 * _MIB)


@pytest.mark.parametrize("limit_bytes", [None, _NO_LIMIT_OF_VERSION_1])
def test_without_a_limit_or_with_a_large_one_the_defaults_hold(limit_bytes: int | None) -> None:
    assert within_limit(BrokerConfig(), limit_bytes) == BrokerConfig()


def test_what_was_set_stays_and_its_partner_with_it() -> None:
    given = BrokerConfig.load(
        {"socket.request.max.bytes": 50 * _MIB, "log.cleaner.dedupe.buffer.size": 64 * _MIB}
    )
    assert bounds(within_limit(given, 128 * _MIB)) == bounds(given)
