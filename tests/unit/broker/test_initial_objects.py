"""What `topics` and `users` name exists once a broker is ready; what exists already stays as it is."""

from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.app import Broker, StartError
from tidelog.broker.configuration.broker_config import BrokerConfig

_OPEN = {"port": 0, "http.port": -1}


def config(folder: Path, **settings: Any) -> BrokerConfig:
    return BrokerConfig.load({**_OPEN, "data.dir": folder, **settings})


def partitions(broker: Broker, name: str) -> int:
    topic = broker.services.catalog.topic(name)
    assert topic is not None
    return len(topic.partitions)


async def test_topics_and_users_exist_when_the_broker_is_ready(tmp_path: Path) -> None:
    given = config(tmp_path, topics="orders:3,clicks", users="alice:secret,bob:other")
    async with await Broker.start(given) as broker:
        assert (partitions(broker, "orders"), partitions(broker, "clicks")) == (3, 1)
        assert await broker.services.users.verify_password("alice", "secret")
        assert await broker.services.users.verify_password("bob", "other")
        assert not await broker.services.users.verify_password("bob", "secret")


async def test_a_start_with_other_values_changes_nothing_that_exists(tmp_path: Path) -> None:
    async with await Broker.start(config(tmp_path, topics="orders:3", users="alice:secret")):
        pass
    async with await Broker.start(config(tmp_path, topics="orders:5,new:2", users="alice:other")) as broker:
        assert (partitions(broker, "orders"), partitions(broker, "new")) == (3, 2)
        assert await broker.services.users.verify_password("alice", "secret")


async def test_a_name_that_no_user_may_have_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="reserved for brokers"):
        await Broker.start(config(tmp_path, users="tidelog-broker:secret"))
    async with await Broker.start(config(tmp_path)) as broker:
        assert broker.services.users.names() == []
