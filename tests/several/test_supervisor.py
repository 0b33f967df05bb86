"""The first process of a broker of several: what it starts, and how that ends."""

import subprocess
import sys
from pathlib import Path

FORK = """
import os, signal, sys
from pathlib import Path
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.processes.supervisor import Supervisor, _Process

fork = os.fork

def fork_and_terminate():
    pid = fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid

os.fork = fork_and_terminate
supervisor = Supervisor(BrokerConfig(data_dir=Path(sys.argv[1])), 2)
process = _Process("0", lambda line: 0)
with supervisor._signals():
    supervisor._fork(process)
    print(os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]))
"""


def test_a_process_that_gets_a_signal_right_after_its_fork_ends_by_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "-15\n", done.stderr
