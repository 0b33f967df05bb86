"""The values of a decoded struct: an object with a slot per declared field, which is a mapping too.

Owns: `Values`, of which each struct of a message has its own class.

Invariants: a class has the fields of all versions, so a handler never needs to know the version. An object is
equal to each mapping with the same items. It takes less memory than a dict of its fields.
"""

from abc import ABCMeta
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast


class Values(Mapping[str, Any]):
    """The fields of one decoded struct, by attribute and by item."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        if name in self.__slots__:
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__slots__)

    def __len__(self) -> int:
        return len(self.__slots__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.items())})"


@cache
def values_class(label: str, names: tuple[str, ...]) -> type[Values]:
    """The class of the struct `label`, for example "MetadataRequest.topics", with these fields."""
    return cast("type[Values]", ABCMeta(label, (Values,), {"__slots__": names}))
