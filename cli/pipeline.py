"""`tidelog pipeline`: the jobs on Spark.

Owns their flags and what they print: a report for people, then one line of JSON for programs. Settings come
from flags, else from a TOML file with the same names (`bootstrap_servers = "..."`). Spark is imported inside
the commands: it takes seconds. The master is `local[*]` unless `--master` names a cluster.
"""

from __future__ import annotations

import json
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failures import Failure

if TYPE_CHECKING:
    from pipeline.jobs.audit import AuditReport, AuditSettings

app = typer.Typer(no_args_is_help=True, help="Jobs on Spark over topics.")

_SETTINGS = frozenset({"topics", "bootstrap_servers", "path", "output", "master"})


@app.callback()
def _pipeline() -> None:
    """Jobs on Spark over topics."""


@app.command()
def audit(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics; all below --path if none.")
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT", help="Broker to ask.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(help="Read segment files below it; up to the high watermark if a broker is named too."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the findings as Parquet; replaced.")] = None,
    settings: Annotated[Path | None, typer.Option(help="TOML file with settings; flags go first.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master.", show_default="local[*]")] = None,
) -> None:
    """Look for duplicates, gaps, reordering and epoch regressions; exits with 1 when there is any."""
    chosen: dict[str, Any] = _read_settings(settings) if settings is not None else {}
    flags = {
        "topics": topics,
        "bootstrap_servers": bootstrap_servers,
        "path": path,
        "output": output,
        "master": master,
    }
    chosen |= {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value
    }
    where = chosen.pop("master", "local[*]")
    _require_extra()
    from pipeline.jobs.audit import AuditSettings

    report = _run_audit(AuditSettings(**chosen | {"topics": tuple(chosen.get("topics", ()))}), where)
    _show(report)
    if not report.is_clean:
        raise typer.Exit(1)


def _require_extra() -> None:
    """Raises Failure where the package was installed without what the jobs need."""
    missing = [library for library in ("numpy", "pyarrow", "pyspark") if find_spec(library) is None]
    if missing:
        raise Failure(
            f"the jobs on Spark need {', '.join(missing)}: install Tidelog with its extra,"
            " pip install 'tidelog[pipeline]'"
        )


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{file} is not TOML: {error}") from None
    if unknown := sorted(values.keys() - _SETTINGS):
        raise Failure(f"{file}: unknown setting {unknown[0]!r}; known are {', '.join(sorted(_SETTINGS))}")
    return values


def _run_audit(settings: AuditSettings, master: str) -> AuditReport:
    from pyspark.errors import PySparkException

    from client.errors import ClientError
    from pipeline.java import JavaNotFoundError
    from pipeline.jobs.audit import run
    from pipeline.offsets import OptionError
    from pipeline.session import start_session

    try:
        spark = start_session("tidelog audit", master=master)
        try:
            return run(spark, settings)
        finally:
            spark.stop()
    except (OptionError, ClientError, FileNotFoundError, JavaNotFoundError) as error:
        raise Failure(" ".join(str(error).split())) from None
    except PySparkException as error:
        raise Failure(str(error).strip()) from None


def _show(report: AuditReport) -> None:
    for finding in report.shown:
        print(
            f"{finding['kind']}: {finding['topic']}-{finding['partition']} offset {finding['offset']},"
            f" producer {finding['producer_id']} epoch {finding['producer_epoch']}"
            f" sequence {finding['sequence']}"
            + (f", {finding['amount']} missing before it" if finding["kind"] == "gap" else "")
        )
    found = sum(report.findings.values())
    if found > len(report.shown):
        print(f"... and {found - len(report.shown)} more")
    print(
        f"{report.records} records of {report.producers} producers,"
        f" {report.unidentified} without a producer: "
        + (f"{found} findings" if found else "each once and in order")
    )
    print(
        json.dumps(
            {
                "event": "audit_finished",
                "records": report.records,
                "unidentified": report.unidentified,
                "producers": report.producers,
                **report.findings,
            }
        )
    )
