"""The command line of the broker: `python -m tidelog.broker`, which is `tidelog serve`.

Owns how flags become settings, and the order in which a process loads its modules. The first request must be
served within 0.5 s of the command, so only what serving needs is imported here.

Exit codes: 0 after SIGTERM or SIGINT, 1 when the broker cannot start, 2 for wrong usage.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError, unknown_variables
from tidelog.broker.configuration.listener_overrides import plain
from tidelog.broker.configuration.memory_limit import memory_limit_bytes, usable_cores, within_limit
from tidelog.broker.configuration.process_count import process_count
from tidelog.broker.configuration.settings import did_you_mean, parse_assignment, variable_of
from tidelog.broker.storage.process_folders import PROCESSES
from tidelog.protocol.settings import as_text, settings_of

_FLAGS = ("host", "port", "data.dir", "http.port", "processes")
_FAULTS = "faults.enable"


def settings_given(flags: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """Settings by outward name, from flags (None: not given) and `--set name=value`. Raises ConfigError."""
    given = {name: value for name, value in flags.items() if value is not None}
    given.update(parse_assignment(text) for text in assignments)
    secrets = [each for each in settings_of(BrokerConfig) if each.is_secret]
    for name in given:
        if any(plain(name).endswith(each.name) for each in secrets):
            raise ConfigError(
                f"{name} is a secret, and every user of this machine can read a command line: set it in the "
                f"file (--config FILE) or in the variable {variable_of(name)}"
            )
    return given


def serve(given: Mapping[str, object], config_file: Path | None = None) -> int:
    """Run a broker until a signal stops it; returns the exit code. `given` has outward names."""
    from tidelog.broker.observability import log_events

    log_events.import_structlog_without_rich()
    log_events.configure()
    import structlog

    logger = structlog.get_logger(__name__)
    try:
        config = BrokerConfig.load(given, environ=os.environ, file=config_file)
        count = process_count(config.processes, usable_cores)
        limit = memory_limit_bytes()
        config = within_limit(config, None if limit is None else limit // count)
    except ConfigError as error:
        logger.error("broker_not_started", error=str(error))
        return 1
    log_events.set_level(config.log_level)
    for variable, advice in unknown_variables(os.environ).items():
        logger.warning("unknown_variable_ignored", variable=variable, advice=advice)
    # Not by Path.is_dir, which raises where the folder cannot be read: the start says so in a line.
    if count > 1 or os.path.isdir(config.data_dir / PROCESSES):
        from tidelog.broker.processes.serving import serve_with

        return serve_with(config, count)
    from tidelog.broker.app import run, serve_until_asked

    return run(serve_until_asked(config))


def main(arguments: Sequence[str] | None = None, program: str = "python -m tidelog.broker") -> int:
    """Parse the command line and serve; returns the exit code. Usage messages name the command `program`."""
    parser = make_parser(program)
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_advice(unknown[0])}")
    parsed = vars(known)
    try:
        given = settings_given({name: parsed[name] for name in (*_FLAGS, _FAULTS)}, parsed["set"])
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return serve(given, parsed["config"])


def make_parser(program: str) -> argparse.ArgumentParser:
    """The command line: a few settings as flags, and `--set` for all others."""
    parser = argparse.ArgumentParser(prog=program, description="Run a Tidelog broker.")
    table = settings_of(BrokerConfig)
    described = {each.name: f"{each.description} Default: {as_text(each.default)}." for each in table}
    for name in _FLAGS:
        parser.add_argument("--" + name.replace(".", "-"), dest=name, metavar="VALUE", help=described[name])
    parser.add_argument(
        "--enable-faults", dest=_FAULTS, action="store_const", const=True, help=described[_FAULTS]
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="Read settings from this TOML file.")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set any setting, such as log.segment.bytes=1048576. `tidelog config` lists all.",
    )
    return parser


def _advice(flag: str) -> str:
    """What was probably meant by a flag that does not exist."""
    name = flag.lstrip("-").partition("=")[0].replace("-", ".")
    names = [each.name for each in settings_of(BrokerConfig)]
    if flag.startswith("--") and name in names:
        return f" (write --set {name}=VALUE)"
    close = difflib.get_close_matches(name, _FLAGS, n=1)
    return f": did you mean --{close[0].replace('.', '-')}?" if close else did_you_mean(name, names)
