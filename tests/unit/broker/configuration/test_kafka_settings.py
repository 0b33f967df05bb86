"""A setting of Kafka that is not here is refused with the reason, wherever it is given."""

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.protocol.errors import ApiError
from tidelog.protocol.settings import ConfigError


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("log.dirs", "a broker here has one data folder: set data.dir"),
        ("process.roles", "a broker here needs no controllers and no ZooKeeper: remove it"),
        ("num.io.threads", ": set processes"),
        ("delegation.token.expiry.time.ms", "decided against"),
        ("group.streams.session.timeout.ms", "KIP-1071"),
    ],
)
def test_it_is_refused_with_what_to_do(name: str, advice: str) -> None:
    for given in (name, name.replace(".", "_")):
        with pytest.raises(ConfigError) as refused:
            BrokerConfig.load({given: "1"})
        assert advice in str(refused.value)
    with pytest.raises(ApiError) as changed:
        BrokerSettings(BrokerConfig()).check("1", {name: "1"})
    assert advice in str(changed.value)
