"""The form of the names of objects: FOLDER/FOLDER/NAME.

Each part has ASCII letters, digits, `-`, `_` and dots, of which none is the first. Raises OSError, as the
stores do.
"""

import errno
import re
from typing import Final

_PART: Final = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART}){{0,3}}")


def is_name(name: str) -> bool:
    """Whether an object may have this name."""
    return _NAME.fullmatch(name) is not None


def check_names(*names: str) -> None:
    """Raise OSError for a name that no object may have."""
    for name in names:
        if not is_name(name):
            raise OSError(errno.EINVAL, f"expected the name of an object, got {name[:200]!a}")


def too_large(name: str, size: int, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"{name} has {size} bytes, expected at most {most_bytes}")
