"""The settings of a broker as an operator gives them, and what comes of them.

A command gives them as `NAME=VALUE`: on the command line, `env:VARIABLE=VALUE` in the environment,
`file:NAME=VALUE` in the file, whose values are TOML. `~` is a space. Behind `?` stands what is shown.
"""

from pathlib import Path

from tidelog.broker.configuration.address_overrides import connections_by_address
from tidelog.broker.configuration.broker_config import BrokerConfig, unknown_variables
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.initial_objects import initial_topics, initial_users
from tidelog.broker.configuration.processes import of_processes
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.protocol.errors import ApiError
from tidelog.protocol.settings import ConfigError


class Site:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "tidelog.toml"

    def _given(self, words: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str], Path | None]:
        by_source: dict[str, dict[str, str]] = {"": {}, "env": {}, "file": {}}
        for word in words:
            source, colon, rest = word.partition(":")
            if not colon or source not in by_source:
                source, rest = "", word
            name, _, value = rest.partition("=")
            by_source[source][name] = value.replace("~", " ")
        lines = by_source["file"].items()
        self.file.write_text(
            "".join(f"{name if name[0] == '[' else repr(name)} = {value}\n" for name, value in lines)
        )
        return by_source[""], by_source["env"], self.file if lines else None

    def _loaded(self, words: tuple[str, ...]) -> BrokerConfig:
        settings, environ, file = self._given(words)
        return BrokerConfig.load(settings, environ=environ, file=file)

    def load(self, *words: str) -> str:
        """What is shown, with its source; an error as it is told."""
        at = words.index("?") if "?" in words else len(words)
        try:
            config = self._loaded(words[:at])
        except ConfigError as error:
            return str(error).replace(str(self.file), "<file>")
        lines = {line.name: line for line in config.describe()}
        return "\n".join(
            f"{lines[name].name}={lines[name].value} ({lines[name].source})".replace(str(self.file), "<file>")
            for name in words[at + 1 :]
        )

    def listeners(self, *words: str) -> str:
        """Where each listens and what it advertises, with its protocol; the one for brokers."""
        try:
            config = self._loaded(words)
        except ConfigError as error:
            return str(error).replace(str(self.file), "<file>")
        between = config.inter_broker_listener.name
        return "\n".join(
            f"{each.listened} as {each.advertised}, {each.security_protocol}, of {each.setting}"
            + ", for brokers" * (each.name == between)
            for each in config.listener_configs
        )

    def of_listener(self, listener: str, name: str, *words: str) -> str:
        """A setting of a listener, or with `LISTENER/MECHANISM` of a mechanism of SASL there."""
        config = self._loaded(words).of_listener(*listener.split("/"))
        return str(getattr(config, name.replace(".", "_")))

    def variables(self, *words: str) -> str:
        """What is said of variables that set nothing."""
        _, environ, _ = self._given(tuple(f"env:{word}" for word in words))
        return "\n".join(f"{name}: {what}" for name, what in unknown_variables(environ).items())

    def processes(self, *words: str) -> str:
        """Each of two processes."""
        try:
            return "\n".join(
                f"{each.node_id} in {each.data_dir}, {each.cluster_store}: "
                + ", ".join(f"{one.listened} as {one.advertised}" for one in each.listener_configs)
                for each in of_processes(self._loaded(words), 2)
            )
        except ConfigError as error:
            return str(error)

    def overrides(self, text: str) -> str:
        config = self._loaded((f"max.connections.per.ip.overrides={text}",))
        return str(connections_by_address(config.max_connections_per_ip_overrides))

    def initial(self, *words: str) -> str:
        """Topics and users that a broker makes at its first start."""
        config = self._loaded(words)
        topics = (":".join(map(str, each)) for each in initial_topics(config.topics))
        return f"topics {' '.join(topics)}, users {initial_users(config.users)}"

    def topic(self, setting: str, *words: str) -> str:
        """What is kept of a topic's setting, on a broker with these."""
        name, _, value = setting.partition("=")
        configs = TopicConfigs(BrokerSettings(self._loaded(words)))
        try:
            return "{}={}".format(*next(iter(configs.check({name: value.replace("~", " ")}).items())))
        except ApiError as error:
            return f"{error.code.name}: {error.message}"
