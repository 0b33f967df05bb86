"""Settings that are the URL of another service: they name no user, since settings are shown. Pure."""

from collections.abc import Callable
from urllib.parse import urlsplit

from tidelog.protocol.settings import ConfigError


def url_of(setting: str, *, may_be_file: bool = False, advice: str = "") -> Callable[[object], str]:
    """The reader of a setting that is empty or a URL of HTTP, which raises ConfigError. `advice` says where
    user and password belong."""

    def read(value: object) -> str:
        if value == "":
            return ""
        parts = urlsplit(value) if isinstance(value, str) else None
        if parts is not None and "@" in parts.netloc:
            raise ConfigError(
                f"{setting} must not hold a user or a password: settings are shown{advice and f'; {advice}'}"
            )
        if parts is not None and parts.scheme in ("http", "https") and parts.hostname:
            return parts.geturl()
        is_local = parts is not None and parts.scheme == "file" and parts.netloc in ("", "localhost")
        if may_be_file and parts is not None and is_local and parts.path:
            return parts.geturl()
        schemes = "https://, http:// or file:///" if may_be_file else "https:// or http://"
        raise ConfigError(f"{setting} must be a URL that begins with {schemes}")

    return read
