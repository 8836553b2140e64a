"""Where a server answers, and what a request to it looks like on the wire."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a server answers: what to connect to, and what to say of it in a request."""

    address: str
    port: int
    tls: ssl.SSLContext | None
    host: str  # of the certificate
    authority: str  # of the Host header
    prefix: str  # of every path

    @classmethod
    def find(cls, url: str) -> Place:
        """Look the host up, once, and keep the first of its addresses that takes a connection.

        With none that does, the first of them: each request will then tell why. Raises `ValueError` for a URL
        that is none, `OSError` for a name that is unknown.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"{url!r} is not an http or https URL")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in found]
        return cls(
            address=next((one for one in addresses if _takes(one, port)), addresses[0]),
            port=port,
            tls=ssl.create_default_context() if parts.scheme == "https" else None,
            host=parts.hostname,
            authority=parts.netloc.rpartition("@")[2],
            prefix=parts.path.rstrip("/").removesuffix("/v1"),
        )

    def request(self, path: str, body: bytes, key: str) -> bytes:
        """Head and body of a POST, ready to be written."""
        lines = [
            f"POST {self.prefix}{path} HTTP/1.1",
            f"host: {self.authority}",
            "user-agent: autotune",
            "accept: text/event-stream",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        if key:
            lines.append(f"authorization: Bearer {key}")
        return "\r\n".join([*lines, "", ""]).encode() + body


def _takes(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2.0).close()
    except OSError:
        return False
    return True
