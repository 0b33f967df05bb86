"""`tidelog pipeline`: one command for each job on Spark.

Owns how a job's table of settings becomes its command's flags: a flag has the setting's name, meaning and
default. A TOML file (`--settings`) takes the same names. A flag that is left out is None, so that the file
and then the table's default decide.
"""

from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tidelog.cli.command_config import COMMAND_CONFIG
from tidelog.cli.options import with_parameters
from tidelog.cli.pipeline_run import run_job
from tidelog.pipeline.jobs.settings import SERVERS, CommonSettings, cluster_prefix, table_of
from tidelog.protocol.settings import Setting, as_text, settings_of

_FILE = Setting(
    "settings",
    str,
    None,
    "Read settings from this TOML file. Flags override it.",
    is_optional=True,
    extras={"metavar": "FILE"},
)
_HELP = {
    "audit": "Find duplicates, gaps, reordering and epoch regressions. Exit with 1 if there are any.",
    "archive": "Keep topics as Parquet files by date. Each record is stored once.",
    "mirror": "Copy topics to other topics, each record once and in order, also after kills.",
    "replay": "Write an archive, or offsets of topics, back into a topic, each record once.",
    "stats": "Show rates, sizes and lag of records, by partition and window.",
}


def command_of(job: str) -> Callable[..., None]:
    """The command of a job, with the signature that its table gives it."""

    def command(**given: Any) -> None:
        run_job(job, given)

    parameters = [*_parameters(table_of(job)), _flag("settings", _FILE), *_parameters(CommonSettings)]
    command.__name__ = job
    command.__doc__ = _HELP[job]
    return with_parameters(command, parameters)


def _parameters(table: Any) -> Iterator[Parameter]:
    for each in settings_of(table):
        prefix = cluster_prefix(each)
        yield _flag(each.attribute if prefix is None else prefix + SERVERS, each)
        if prefix is not None:
            yield _flag(prefix + COMMAND_CONFIG.attribute, COMMAND_CONFIG)


def _flag(name: str, each: Setting) -> Parameter:
    """The argument or option of a setting, None if it is left out."""
    shown: dict[str, Any] = {
        "help": each.description,
        "metavar": each.extras.get("metavar"),
        "show_default": _default(name, each),
    }
    if name == "topics":
        info: Any = typer.Argument(**shown | {"metavar": "[TOPIC]..."})
    else:
        info = typer.Option(*_names(name), **shown)
    kind = str if cluster_prefix(each) is not None else each.kind
    annotation = Annotated[list[kind] | None if each.is_many else kind | None, info]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _names(name: str) -> tuple[str, ...]:
    """The option's names where typer would not find them by itself."""
    return ("--bootstrap-servers", "-b") if name == SERVERS else ()


def _default(name: str, each: Setting) -> str | bool:
    """The default as help shows it; empty if there is none."""
    if each.is_required or each.default in (None, "", ()):
        return False
    if each.kind is bool:
        return f"{'' if each.default else 'no-'}{name.replace('_', '-')}"
    return as_text(each.default)


class _Jobs(TyperGroup):
    """Makes a job's command when it is asked for: all tables together take a tenth of a command's start."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_HELP)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _HELP:
            return None
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cmd_name)(command_of(cmd_name))
        return get_command(alone)


app = typer.Typer(no_args_is_help=True, cls=_Jobs, help="Run Spark jobs on topics.")


@app.callback()
def _pipeline() -> None:
    """Run Spark jobs on topics."""
