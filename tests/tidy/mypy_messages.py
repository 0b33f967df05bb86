"""A plugin of mypy: `DictOf[X]` is a TypedDict, total=False, of the fields of the struct X.

In it a struct is a dict too, an array is any sequence, bytes are any buffer, and a number is an int.
"""

from collections.abc import Callable

from mypy.nodes import Var
from mypy.plugin import AnalyzeTypeContext, Plugin, TypeAnalyzerPluginInterface
from mypy.types import AnyType, Instance, Type, TypedDictType, TypeOfAny, UnionType, get_proper_type

_DECLARATION = "tidelog.protocol.messages.declaration"
_BUFFERS = ("builtins.bytes", "builtins.bytearray", "builtins.memoryview")


class Messages(Plugin):
    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        return _dict_of if fullname == f"{_DECLARATION}.DictOf" else None


def _dict_of(context: AnalyzeTypeContext) -> Type:
    (struct,) = context.type.args
    return _encodable(context.api.analyze_type(struct), context.api)


def _encodable(declared: Type, api: TypeAnalyzerPluginInterface) -> Type:
    declared = get_proper_type(declared)
    if isinstance(declared, UnionType):
        return UnionType([_encodable(item, api) for item in declared.items])
    if not isinstance(declared, Instance):
        return declared
    if declared.type.has_base(f"{_DECLARATION}.Struct"):
        fields = {
            name: _encodable(symbol.node.type or AnyType(TypeOfAny.special_form), api)
            for name, symbol in declared.type.names.items()
            if isinstance(symbol.node, Var)
        }
        return TypedDictType(fields, set(), set(), api.named_type("typing._TypedDict", []))
    if declared.type.fullname == "builtins.list":
        return api.named_type("typing.Sequence", [_encodable(declared.args[0], api)])
    if declared.type.fullname == "builtins.bytes":
        return UnionType([api.named_type(buffer, []) for buffer in _BUFFERS])
    return declared.type.bases[0] if declared.type.is_newtype else declared


def plugin(_version: str) -> type[Plugin]:
    return Messages
