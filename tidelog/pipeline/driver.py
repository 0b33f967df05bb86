"""The files of a checkpoint, as the driver's Java sees them: through Hadoop's file systems, with Spark's
settings.

Owns the way from a Python process that Spark starts beside the driver to the driver's Java: a file that only
this user can read has the port and the token of Py4J's gateway, and an environment variable of Spark's Python
processes names this file. It is in the driver's temporary folder, so processes on other machines have no file
with this name.

Invariants: nothing is written to these file systems.
"""

import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_GATEWAY = "TIDELOG_DRIVER_GATEWAY"


def publish_gateway(context: "SparkContext") -> None:
    """Let the Python processes of the data sources that are registered from now on read files by the driver's
    Java."""
    if _GATEWAY in context.environment:
        return
    folder = Path(tempfile.mkdtemp(prefix="tidelog-driver-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parameters = context._gateway.gateway_parameters
    path = folder / "gateway"
    path.write_text(json.dumps({"port": parameters.port, "auth_token": parameters.auth_token}))
    context.environment[_GATEWAY] = str(path)


def read_by_driver(uri: str) -> bytes | None:
    """The content of the file, None if the driver's Java cannot be reached from here: `start_session` did not
    start or find this Spark. Raises OSError."""
    try:
        parameters = json.loads(Path(os.environ[_GATEWAY]).read_text())
    except (KeyError, FileNotFoundError):
        return None
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError, Py4JJavaError

    gateway = JavaGateway(gateway_parameters=GatewayParameters(**parameters))
    try:
        java = gateway.jvm
        path = java.org.apache.hadoop.fs.Path(uri)
        settings = java.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration()
        stream = path.getFileSystem(settings).open(path)
        try:
            return bytes(java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise OSError(str(error.java_exception.toString())) from None
    except Py4JError as error:
        raise OSError(str(error)) from None
    finally:
        gateway.close()
