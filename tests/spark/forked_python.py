"""The `python` of the tests' Spark: each process is forked from one that has imported what they all need.

Spark starts a Python for each streaming query, each kind of planning and each few tasks, and each of them
imports for most of a second. `served` starts the process to fork from. This file itself is what Spark starts
then: it has one forked for the arguments, environment and open files that it was given, and ends with it.
`test_wheel` and the killed jobs of `make spark` start theirs as users do.
"""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_ADDRESS = "TESTS_PYTHON_TO_FORK"
_STANDARD_FILES = (0, 1, 2)
_IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "tidelog.pipeline.data_source",
    "tidelog.pipeline.exactly_once.writer",
    "tidelog.pipeline.mirror.writer",
    "tidelog.pipeline.writers",
    "tidelog.pipeline.source.batch_source",
    "tidelog.pipeline.source.reading",
    "tidelog.pipeline.source.stream_source",
)
# A fork copies no threads, and no seed of hashes but that of the process it is made from.
_SERVER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@contextmanager
def served(folder: Path) -> Iterator[Path]:
    """The program that Spark can run as its Python until the block ends. `folder` takes it."""
    import subprocess

    from tests.tidy.house import ROOT

    address, program = folder / "python.socket", folder / "python"
    program.write_text(f'#!/bin/sh\n{_ADDRESS}={address} exec {sys.executable} -S -E {__file__} "$@"\n')
    program.chmod(0o755)
    environment = os.environ | _SERVER_ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--serve", str(address)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline()
        # The block's end closes its input, and so ends it.
        yield program


def _serve(address: str) -> None:
    import gc
    import importlib
    import select

    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([sys.stdin, listener], [], [])
            if sys.stdin in readable:
                return
            client, _ = listener.accept()
            with client:
                if not os.fork():
                    listener.close()
                    _answer(client)


def _answer(client: socket.socket) -> None:
    """Fork a process for the client, and say which it is and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(client, 4, len(_STANDARD_FILES))
    with client.makefile("rb") as request:
        text = request.read(int.from_bytes(size, "big")).decode()
    pid = os.fork()
    if not pid:
        client.close()
        for number, file in zip(_STANDARD_FILES, files, strict=True):
            os.dup2(file, number)
            os.close(file)
        folder, arguments, environment = (part.split("\0") for part in text.split("\0\0"))
        os.chdir(folder[0])
        os.environ.clear()
        os.environ.update(each.split("=", 1) for each in environment)
        _run_module(arguments)
    for file in files:
        os.close(file)
    client.sendall(pid.to_bytes(4, "big"))
    _, status = os.waitpid(pid, 0)
    client.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
    os._exit(0)


def _run_module(arguments: Sequence[str]) -> None:
    """Be `python -m` with these arguments. Does not return."""
    import runpy
    import traceback

    code: object = 0
    sys.argv[:] = arguments
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255 if isinstance(code, int) else int(code is not None))


def _ask(arguments: Sequence[str]) -> int:
    """Have `python -m` with these arguments run; its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[_ADDRESS])
        environment = (f"{name}={text}" for name, text in os.environ.items())
        request = "\0\0".join("\0".join(part) for part in ([os.getcwd()], arguments, environment)).encode()
        socket.send_fds(server, [len(request).to_bytes(4, "big")], _STANDARD_FILES)
        server.sendall(request)
        pid = int.from_bytes(server.recv(4), "big")
        signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
        answer = server.recv(1)
        return answer[0] if answer else 1


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(sys.argv[2])
    elif sys.argv[1] == "-m":
        sys.exit(_ask(sys.argv[2:]))
    else:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
