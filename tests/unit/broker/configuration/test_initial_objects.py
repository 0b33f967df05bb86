"""The syntax of `topics` and `users`; no message has a password."""

from tidelog.broker.configuration.broker_config import BrokerConfig


def test_the_passwords_are_shown_nowhere() -> None:
    config = BrokerConfig.load({"users": "alice:s3cret"})
    assert "s3cret" not in "".join(map(str, config.describe()))
    assert "s3cret" not in repr(config)
