"""Settings in the variables of Kafka's image: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`.

Owns which settings they may set, and what to say of those that mean nothing here. Invariant: the variables
that Kubernetes and Docker set for a service called kafka set nothing.

Pure. Source: Kafka's KafkaDockerWrapper; its listeners of controllers (KIP-500) do not exist here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.configuration.kafka_settings import not_here
from tidelog.broker.configuration.settings import ENVIRONMENT_PREFIX, variable_of

_PREFIX: Final = "KAFKA_"
_OF_SERVICES: Final = re.compile(r"(?:HOST|PORT|SERVICE|ENV|NAME)(?:_.*)?|(?:PORT_)?\d+_TCP.*")
_CONTROLLERS: Final = "KAFKA_CONTROLLER_LISTENER_NAMES"
_LISTENERS: Final = ("LISTENERS", "ADVERTISED_LISTENERS")
_OF_JAVA: Final = re.compile(r"(?:.+_)?OPTS|JMX_.*|LOG4J_.*|TOOLS_LOG4J_.*")
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
    if _OF_JAVA.fullmatch(rest):
        return "a broker here is no Java program: remove it"
    of_kafka = not_here(rest.replace("_", ".").lower())
    if of_kafka is None:
        return _NO_SETTING
    return str(of_kafka._replace(instead=of_kafka.instead and kafkas(variable_of(of_kafka.instead))))
