"""The types of messages for mypy are those of the declarations. To write them again after a change:
python -m tests.unit.protocol.test_message_types
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from tidelog.broker.handlers import error_answers
from tidelog.broker.peers import connections
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.protocol import messages
from tidelog.protocol.messages.declaration import Field, Message
from tidelog.protocol.schema import APIS, ApiKey

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(messages.__path__[0]).with_name("message_types.pyi")
HEAD = '''\
"""The types of messages, made from their declarations by tests/unit/protocol/test_message_types.py.

Owns: for each message, a class X: what decoding returns, where every declared field is present; and a dict
XDict: what encoding accepts, where a missing field gets its default. A struct in a message has the message's
name before its own. The requests that a broker decodes, the responses that it encodes; the reverse where a
client or a broker requests the API; keys and values of records. Those that no code names, also not through
another one, are left out. Produce and Fetch have the values of `protocol.hot`.

Invariants: nothing of it exists at run time, so it is imported under TYPE_CHECKING only.
"""

from collections.abc import Sequence
from typing import TypedDict
from uuid import UUID

from tidelog.protocol.types import Buffer, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
'''
CODE = [path for folder in ("tidelog", "tests") for path in (ROOT / folder).rglob("*.py")]
Shape = tuple[Any, ...]
WITH_VALUES_OF_THEIR_OWN = (ApiKey.PRODUCE, ApiKey.FETCH)
SCALARS = {
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "UUID",
    "bool": "bool",
    "float64": "float",
}
SNIPPET = """\
from tidelog.protocol import message_types as types

def handle(request: types.HeartbeatRequest) -> types.HeartbeatResponseDict:
    if request.group == "":  # attr-defined
        return {"eror_code": 0}  # typeddict-unknown-key
    if request.group_instance_id.startswith("a"):  # union-attr
        return {"error_code": request.member_id}  # typeddict-item
    return {"error_code": request.generation_id}
"""
NUMBERS = {
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "leader_epoch": "LeaderEpoch",
    "offset": "Offset",
    "watermark": "Offset",
    "timestamp": "TimestampMs",
}
"""By the end of a decoded number's name."""


def message_types() -> str:
    """The file."""
    forms = _forms()
    text = "".join(f"{line}\n" for message, is_dict in forms for line in _classes(message, is_dict=is_dict))
    classes = {found[1]: found[0] for found in re.finditer(r"\nclass (\w+).*\n(?: .*\n)*", text)}
    wanted = [word for path in CODE for word in re.findall(r"\btypes\.(\w+)", path.read_text())]
    named: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in classes and name not in named:
            named.add(name)
            wanted += re.findall(r"\w+", classes[name])
    return HEAD + "".join(text for name, text in classes.items() if name in named)


def _forms() -> Iterator[tuple[Message, bool]]:
    for key, api in APIS.items():
        if key not in WITH_VALUES_OF_THEIR_OWN:
            yield from ((api.request, False), (api.response, True))
            if key in ASKED_APIS or key in connections.ASKED_APIS:
                yield from ((api.request, True), (api.response, False))
    of_apis = {message.name for api in APIS.values() for message in (api.request, api.response)}
    for module in iter_modules(messages.__path__, f"{messages.__name__}."):
        for constant, message in vars(import_module(module.name)).items():
            if isinstance(message, Message) and message.name not in of_apis:
                named = message._replace(name=_in_camel_case(constant))
                yield from ((named, False), (named, True))


def _classes(message: Message, *, is_dict: bool) -> Iterator[str]:
    names: dict[Shape, str] = {}
    structs = {message.name: message.fields}
    _name_structs(message.name, "", message.fields, names, structs)
    end, base = ("Dict", "(TypedDict, total=False)") if is_dict else ("", "")
    for name, fields in structs.items():
        yield ""
        yield f"class {name}{end}{base}:{'' if fields else ' ...'}"
        yield from (f"    {field.name}: {_type(field, names, end)}" for field in fields)


def _name_structs(
    message: str,
    within: str,
    fields: tuple[Field, ...],
    names: dict[Shape, str],
    structs: dict[str, tuple[Field, ...]],
) -> None:
    """Structs of the same shape are one type. Of two names, the second has that of its parent before it."""
    for field in fields:
        if field.fields and _shape(field.fields) not in names:
            own = _singular(field.name) if field.is_array else _in_camel_case(field.name)
            name = f"{message}{own}" if f"{message}{own}" not in structs else f"{message}{within}{own}"
            assert name not in structs, f"two structs of {message} are named {name}"
            names[_shape(field.fields)] = name
            structs[name] = field.fields
            _name_structs(message, own, field.fields, names, structs)


def _shape(fields: tuple[Field, ...]) -> Shape:
    return tuple((field.name, field.type, _may_be_none(field), _shape(field.fields)) for field in fields)


def _singular(name: str) -> str:
    if name.endswith("ies"):
        name = name[:-3] + "y"
    name = name.removesuffix("es") if name.endswith("ches") else name
    return _in_camel_case(name.removesuffix("s"))


def _in_camel_case(name: str) -> str:
    return name.title().replace("_", "")


def _type(field: Field, names: dict[Shape, str], end: str) -> str:
    kind = SCALARS.get(field.element_type, "int")
    if field.fields:
        kind = names[_shape(field.fields)] + end
    elif kind == "int" and not end:
        kind = next((own for name, own in NUMBERS.items() if field.name.endswith(name)), kind)
    elif kind == "bytes" and end:
        kind = "Buffer"
    if field.is_array:
        kind = f"Sequence[{kind}]" if end else f"list[{kind}]"
    return f"{kind} | None" if _may_be_none(field) else kind


def _may_be_none(field: Field) -> bool:
    return bool(field.nullable) or field.default is None


def test_the_types_of_messages_are_those_of_their_declarations() -> None:
    assert FILE.read_text() == message_types(), __doc__


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


if __name__ == "__main__":
    FILE.write_text(message_types())
