"""No handler hides the fields of its messages from a type checker (`written_types.py`)."""

import re
from pathlib import Path

from tidelog.broker.handlers import error_answers

ROOT = Path(__file__).resolve().parents[3]


def test_no_handler_hides_the_fields_of_its_messages() -> None:
    # Some error answers find their fields by names that they are given.
    files = set((ROOT / "tidelog/broker/handlers").glob("*.py")) - {Path(error_answers.__file__)}
    assert not [path.name for path in files if re.search(r"request: Any|dict\[str, Any\]", path.read_text())]
