"""The parts of the documents that come from the code: settings, metrics, commands, modules.

A document has them between `<!-- table: NAME -->` and `<!-- end of table -->`, so it reads well where nothing
is built. `python -m docs.tables` writes them anew. A test fails where they differ from the code.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer

from docs import compatibility
from tidelog.broker.cluster.membership import ClusterCounts
from tidelog.broker.command import make_parser
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.topic_configs import BROKER_NAMES
from tidelog.broker.console.routes import ROUTES
from tidelog.broker.coordinator.offset_metrics import FAMILIES, LEFT_OUT
from tidelog.broker.handlers.fetch_sessions import FetchSessions
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.observability.remote_counts import RemoteCounts
from tidelog.broker.observability.share_counts import ShareCounts
from tidelog.broker.security.required_access import LAST, Need
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.broker.storage.log_config import LogConfig
from tidelog.cli.app import app as commands
from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.producer.config import ProducerConfig
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.pipeline.jobs.settings import JOBS, SERVERS, CommonSettings, cluster_prefix, table_of
from tidelog.pipeline.options.tables import (
    FOREIGN_TO_SINK,
    FOREIGN_TO_SOURCE,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Foreign,
    OptionTable,
)
from tidelog.protocol.schema import APIS
from tidelog.protocol.settings import Setting, as_text, settings_of
from tidelog.wire.cluster_config import ClusterConfig

_SETTING = ("setting", "meaning")
_CODE = ("tidelog", "faults", "demo", "bench")


def broker_settings() -> str:
    rows = (_row(each.name, each, dynamic=each.extras.get("dynamic")) for each in settings_of(BrokerConfig))
    return _table(_SETTING, sorted(rows))


def topic_settings() -> str:
    rows = (_topic_setting(each) for each in settings_of(LogConfig) if "without_effect" not in each.extras)
    return _table(_SETTING, sorted(rows))


def topic_settings_without_effect() -> str:
    rows = (
        (*_topic_setting(each), each.extras["without_effect"])
        for each in settings_of(LogConfig)
        if "without_effect" in each.extras
    )
    return _table(("setting", "meaning in Kafka", "why it has no effect here"), rows)


def _topic_setting(each: Setting) -> tuple[str, str]:
    name = BROKER_NAMES.get(each.name)
    broker = "" if name is None else f" The broker's setting: {_code(name)}."
    return _code(each.name), f"{each.description} Default: {_code(as_text(each.default)) or 'none'}.{broker}"


def job_settings() -> str:
    """The settings of all jobs, one table each under its name."""
    tables = {job: table_of(job) for job in JOBS} | {"every job": CommonSettings}
    return "\n\n".join(f"**{job}**\n\n{_settings(table)}" for job, table in tables.items())


def required_access() -> str:
    apis = SERVED_APIS.values()
    named = sorted((APIS[api.key].name, *_access(need)) for api in apis for need in api.needs)
    nothing = sorted(APIS[api.key].name for api in apis if not api.needs)
    head = ("API", "needs one of", "when", "without it")
    return f"{_table(head, named)}\n\nNothing is needed for {', '.join(nothing)}."


def _access(need: Need) -> tuple[str, str, str]:
    rights = " or ".join(
        f"{_words(right.operation.name)} on the {right.resource_type.name.lower().replace('_', ' ')}"
        for right in need.rights
    )
    versions = "" if need.last == LAST else f"version {need.last} or older"
    versions = f"version {need.first} or newer" if need.first else versions
    return rights, need.when or versions, need.effect.value


def _words(operation: str) -> str:
    """An operation as Kafka's tools write it: DescribeConfigs."""
    return "".join(word.capitalize() for word in operation.split("_"))


def console_api() -> str:
    rows = (
        (
            _code(f"{route.method} {route.path}"),
            route.summary,
            " and ".join(_access(need)[0] for need in route.needs),
        )
        for route in ROUTES
    )
    return _table(("route", "answer", "needs"), rows)


def broker_metrics() -> str:
    metrics = Metrics()
    metrics.fetch_sessions = FetchSessions(0, 0, lambda: 1)
    metrics.remote = RemoteCounts()
    metrics.share = ShareCounts()
    metrics.cluster = lambda: ClusterCounts(True, 0, 0, 0, 0)
    rows = (
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", family.type, family.documentation)
        for family in metrics.collect()
    )
    offsets = ((_code(family.name), "gauge", family.description) for family in (*FAMILIES, LEFT_OUT))
    return _table(("metric", "type", "meaning"), [*rows, *offsets])


def _kafkas_settings(
    rows: Callable[[], Iterable[tuple[str, ...]]], head: tuple[str, ...] = ("setting", "here", "note")
) -> str:
    return _table(head, ((_code(name), *rest) for name, *rest in rows()))


def recorded_runs() -> str:
    runs = json.loads(Path(__file__).with_name("runs.json").read_text())
    rows = ((each["clients"], _code(suite), str(each["passed"])) for suite, each in runs.items())
    return _table(("clients", "suite", "tests passed"), rows)


def command_sections() -> str:
    """A section per command, with its arguments and options as `--help` describes them."""
    return "\n\n".join(_command(typer.main.get_command(commands), ("tidelog",), None))


def _command(command: Any, path: tuple[str, ...], parent: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=path[-1], parent=parent)
    text = _prose(" ".join(command.help.split("\n\n")[0].split()))
    more = [_prose(" ".join(part.split())) for part in command.help.split("\n\n")[1:]]
    if len(path) > 1:
        yield "\n\n".join([f"{'#' * len(path)} {' '.join(path)}", text, *more])
    if path == ("tidelog", "serve"):
        yield _parameters(
            (", ".join(each.option_strings) + f" {each.metavar or ''}", each.help or "")
            for each in make_parser("tidelog serve")._actions
        )
    elif hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _command(command.get_command(context, name), (*path, name), context)
    else:
        records = (each.get_help_record(context) for each in command.params)
        yield _parameters(each for each in records if each is not None)


def _parameters(rows: Iterable[tuple[str, str]]) -> str:
    return _table(("argument", "meaning"), ((_code(name.strip()), _prose(text)) for name, text in rows))


def _prose(text: str) -> str:
    """Help as Markdown: what stands between backticks stays, other marks are no marks."""
    return re.sub(r"(`[^`]*`)|([<*_])", lambda found: found[1] or f"\\{found[2]}", text)


def _settings(table: Any) -> str:
    """A declared table; of a cluster in it the setting that names its servers."""
    rows = []
    for each in settings_of(table):
        prefix = cluster_prefix(each)
        rows.append(_row(each.attribute if prefix is None else prefix + SERVERS, each))
    return _table(_SETTING, rows)


def _row(name: str, setting: Setting, *, dynamic: bool = False) -> tuple[str, str]:
    is_none = setting.is_required or setting.default in (None, "", ())
    default = "" if is_none else f" Default: {_code(as_text(setting.default))}."
    return _code(name), f"{setting.description}{default}{' *Dynamic.*' if dynamic else ''}"


def _options(options: OptionTable, foreign: Foreign) -> str:
    rows = (
        (_code(name), f"{each.description}{each.default and f' Default: {_code(each.default)}.'}")
        for name, each in options.items()
    )
    # The options of Spark's Kafka connector and of Kafka's clients that are not taken as they are.
    states = {"ignored with a warning": foreign.ignored, "refused": foreign.refused}
    others = (
        (_code(name), state, why) for state, named in states.items() for name, why in sorted(named.items())
    )
    of_others = _table(("option of Spark's Kafka connector", "here", "because"), others)
    return f"{_table(('option', 'meaning'), rows)}\n\n{of_others}"


def module_sections() -> str:
    """A section per package, with what each of its modules says that it owns."""
    root = Path(__file__).parents[1]
    inits = [path for code in _CODE for path in (root / code).rglob("__init__.py")]
    return "\n\n".join(_package(root, init) for init in sorted(inits, key=lambda init: init.parent))


def _package(root: Path, init: Path) -> str:
    others = (path for path in sorted(init.parent.glob("*.py")) if not path.stem.startswith("__"))
    rows = ((_code(path.stem), _owned(path)) for path in others)
    parts = (f"## {init.parent.relative_to(root)}", _owned(init), _table(("module", "what it owns"), rows))
    return "\n\n".join(filter(None, parts))


def _owned(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return _prose(text.partition("\n\n")[0].replace("\n", " "))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "broker_settings": broker_settings,
    "console_api": console_api,
    "topic_settings": topic_settings,
    "topic_settings_without_effect": topic_settings_without_effect,
    "required_access": required_access,
    "cluster_settings": partial(_settings, ClusterConfig),
    "producer_settings": partial(_settings, ProducerConfig),
    "consumer_settings": partial(_settings, ConsumerConfig),
    "share_consumer_settings": partial(_settings, ShareConsumerConfig),
    "source_options": partial(_options, SOURCE_OPTIONS, FOREIGN_TO_SOURCE),
    "sink_options": partial(_options, SINK_OPTIONS, FOREIGN_TO_SINK),
    "job_settings": job_settings,
    "broker_metrics": broker_metrics,
    "kafkas_apis": lambda: _table(("number", "API", "Kafka", "here", "note"), compatibility.apis()),
    "kafkas_broker_settings": partial(_kafkas_settings, compatibility.broker_settings),
    "kafkas_topic_settings": partial(_kafkas_settings, compatibility.topic_settings),
    "kafkas_group_settings": partial(_kafkas_settings, compatibility.group_settings),
    "kafkas_client_metrics_settings": partial(_kafkas_settings, compatibility.client_metrics_settings),
    "kafkas_client_settings": partial(
        _kafkas_settings,
        compatibility.client_settings,
        ("setting", "clients", "here", "argument, or why there is none"),
    ),
    "recorded_runs": recorded_runs,
    "decided_against": partial(_table, ("not here", "why"), compatibility.DECIDED_AGAINST),
    "comes_later": partial(_table, ("comes later", "until then"), compatibility.LATER),
    "command_sections": command_sections,
    "module_sections": module_sections,
}
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(\n<!-- end of table -->)", re.DOTALL)


def renewed(text: str) -> str:
    """A document with all its tables as the code has them now."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)


def main() -> None:
    for path in sorted(Path(__file__).parent.glob("*.md")):
        text = path.read_text()
        if (new := renewed(text)) != text:
            path.write_text(new)


if __name__ == "__main__":
    main()
