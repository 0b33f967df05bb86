"""Settings in the variables of Kafka's image: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`.

Owns which settings they may set, and what to say of those that mean nothing here. Invariant: the variables
that Kubernetes and Docker set for a service called kafka set nothing.

Pure. Source: Kafka's KafkaDockerWrapper; its listeners of controllers (KIP-500) do not exist here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.configuration.settings import ENVIRONMENT_PREFIX

_PREFIX: Final = "KAFKA_"
_OF_SERVICES: Final = re.compile(r"(?:HOST|PORT|SERVICE|ENV|NAME)(?:_.*)?|(?:PORT_)?\d+_TCP.*")
_CONTROLLERS: Final = "KAFKA_CONTROLLER_LISTENER_NAMES"
_LISTENERS: Final = ("LISTENERS", "ADVERTISED_LISTENERS")
_ADVICE: Final = (
    (
        r"PROCESS_ROLES|CONTROLLER_.*|METADATA_.*|.*_CONTROLLER_PROTOCOL|ZOOKEEPER_.*"
        r"|INITIAL_BROKER_REGISTRATION_TIMEOUT_MS|BROKER_HEARTBEAT_INTERVAL_MS",
        "a broker here needs no controllers and no ZooKeeper: remove it",
    ),
    (r"(?:.+_)?OPTS|JMX_.*|LOG4J_.*|TOOLS_LOG4J_.*", "a broker here is no Java program: remove it"),
    (r"LOG_DIRS?", "set TIDELOG_DATA_DIR"),
    (r"BROKER_ID", "set KAFKA_NODE_ID"),
)
_NO_SETTING: Final = "there is no setting of this name: remove it, or look for one by `tidelog config`"


def as_own(environ: Mapping[str, str]) -> dict[str, str]:
    """The same variables with the prefix of Tidelog's, without listeners that are for controllers only."""
    given = {
        ENVIRONMENT_PREFIX + rest: value
        for name, value in environ.items()
        if name.startswith(_PREFIX) and not _OF_SERVICES.fullmatch(rest := name.removeprefix(_PREFIX))
    }
    controllers = {each.strip().upper() for each in environ.get(_CONTROLLERS, "").split(",")}
    for name in (ENVIRONMENT_PREFIX + each for each in _LISTENERS):
        if name in given:
            listeners = [each.strip() for each in given[name].split(",")]
            kept = [each for each in listeners if each.partition(":")[0].upper() not in controllers]
            given[name] = ",".join(kept)
    return given


def kafkas(variable: str) -> str:
    """Kafka's variable, by Tidelog's for the same setting."""
    return _PREFIX + variable.removeprefix(ENVIRONMENT_PREFIX)


def without_effect(given: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Kafka's variables that set nothing, each with what to do. `given` is of `as_own`; `known` are Tidelog's
    variables."""
    unknown = sorted(set(given) - set(known))
    return {kafkas(name): _advice(name.removeprefix(ENVIRONMENT_PREFIX)) for name in unknown}


def _advice(rest: str) -> str:
    return next((advice for pattern, advice in _ADVICE if re.fullmatch(pattern, rest)), _NO_SETTING)
