"""To a type checker a message is its declaration: a class when it is decoded, a dict when it is encoded."""

import re
import subprocess
import sys
from pathlib import Path

from tidelog.broker.handlers import error_answers

ROOT = Path(__file__).resolve().parents[3]
SNIPPET = """\
from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf

def handle(request: types.HeartbeatRequest) -> DictOf[types.HeartbeatResponse]:
    if request.group == "":  # attr-defined
        return {"eror_code": 0}  # misc
    if request.group_instance_id.startswith("a"):  # union-attr
        return {"error_code": request.member_id}  # typeddict-item
    return {"error_code": request.generation_id}

def commit(topic: str, offset: int, metadata: memoryview) -> DictOf[types.OffsetCommitRequest]:
    partition: DictOf[types.OffsetCommitRequestPartition] = {"committed_offset": offset}
    protocols: DictOf[types.JoinGroupRequest] = {"protocols": ({"name": "range", "metadata": metadata},)}
    partitions = [partition, partition]
    return {"topics": [{"topic": topic, "partitions": partitions}]}  # typeddict-item
"""


def test_a_type_checker_knows_the_fields_of_messages(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(snippet)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = {int(line): code for line, code in re.findall(r"snippet.py:(\d+): error: .*\[(.+)\]", said)}
    assert found == {
        n: line.partition("# ")[2] for n, line in enumerate(SNIPPET.splitlines(), 1) if "#" in line
    }


def test_no_handler_hides_the_fields_of_its_messages() -> None:
    # Some error answers find their fields by names that they are given.
    files = set((ROOT / "tidelog/broker/handlers").glob("*.py")) - {Path(error_answers.__file__)}
    assert not [path.name for path in files if re.search(r"request: Any|dict\[str, Any\]", path.read_text())]
