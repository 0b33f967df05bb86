"""`tidelog config`: which settings a broker has, what they are here, and from where.

The settings are those of `broker.configuration.broker_config`. Starts no broker and opens no connection.
"""

import json
import os
from pathlib import Path
from typing import Annotated

from tidelog.cli.failures import Failure
from tidelog.cli.options import AsJson, option
from tidelog.cli.tables import print_table, shortened


def config(
    file: Annotated[
        Path | None, option("--config", metavar="FILE", help="Read settings from this TOML file.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        option("--set", metavar="NAME=VALUE", help="Set a setting, as for `tidelog serve`. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all settings that a broker would start with here.

    The list has the value, the default, the source and the meaning of each setting.

    The first source that has a setting counts: --set, the environment (TIDELOG_LOG_SEGMENT_BYTES), the TOML
    file, the default.
    """
    from tidelog.broker.command import settings_given
    from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError

    try:
        given = settings_given({}, assignments or [])
        settings = sorted(BrokerConfig.load(given, environ=os.environ, file=file).describe())
    except ConfigError as error:
        raise Failure(str(error)) from None
    if as_json:
        for setting in settings:
            print(json.dumps(setting._asdict()))
        return
    rows = [
        (each.name, shortened(each.value), shortened(each.default), each.source, each.description)
        for each in settings
    ]
    print_table(("SETTING", "VALUE", "DEFAULT", "SOURCE", "MEANING"), rows)
