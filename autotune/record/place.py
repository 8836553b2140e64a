"""Where the recorder listens and where it sends on to."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from autotune.errors import InputError

_PORTS = {"http": 80, "https": 443}
_HINT = "write http://HOST:PORT or https://HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The recorded server; `prefix` is put before the target of every request, '' for none."""

    host: str
    port: int
    tls: bool
    prefix: str
    authority: str

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """Of 'http://127.0.0.1:8000'; a `/v1` at the end is what the requests bring themselves.

        Raises `InputError` for anything but http or https, and for keys, queries and fragments in it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            raise InputError(f"--upstream {url!r} is no URL: {error}", hint=_HINT) from error
        if parts.scheme not in _PORTS or not parts.hostname or not url.isascii() or not url.isprintable():
            raise InputError(f"--upstream {url!r} is not the URL of a server", hint=_HINT)
        if parts.username is not None or parts.query or parts.fragment or " " in url:
            raise InputError(
                f"--upstream {parts.scheme}://{parts.hostname} has more than a host, a port and a path",
                hint="keys belong into the requests; the recorder passes them on and keeps none",
            )
        if port == 0:
            raise InputError(f"--upstream {url!r} names port 0, where nothing answers", hint=_HINT)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(
            host=parts.hostname,
            port=port or _PORTS[parts.scheme],
            tls=parts.scheme == "https",
            prefix=parts.path.rstrip("/").removesuffix("/v1"),
            authority=f"{host}:{port}" if port else host,
        )

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address that clients are pointed at; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Of '127.0.0.1:8001', '[::1]:8001' or ':8001', which is the loopback; raises `InputError`."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host[:1] != "["):
            raise InputError(f"--listen {text!r} is no address", hint="write HOST:PORT, e.g. 127.0.0.1:8001")
        return cls(host=host.strip("[]") or "127.0.0.1", port=int(port))

    @property
    def private(self) -> bool:
        """True when only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
