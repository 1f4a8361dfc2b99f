"""From a Secret to a place to connect to, so that whoever writes a JobQueue cannot aim the operator.

Only the listed keys are read; each is a value of its own, never a piece of a connection string. Sockets and what
listens beside the operator (loopback and link-local addresses) are refused, by what a name stands for, and what was
looked at is what is connected to.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from jobqueue.connect import FILES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NEEDED = ("host", "dbname", "user")
SSL_MODES = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
VALUE_MOST = 65_536
"""Bytes of one value."""
LOOKING_UP = 5.0
"""Seconds that a name may take to be looked up."""
PORT_MOST = 65_535
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class LoginRefused(Exception):  # noqa: N818 - reads as a fact
    """A Secret cannot be used. The message names the key, the reason and the remedy, and shows no password."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a Secret says. Its text form shows no secret."""

    host: str
    port: int
    dbname: str
    user: str
    password: str = ""
    sslmode: str = "prefer"
    sslrootcert: str = ""
    """The certificate itself, in PEM."""

    def __repr__(self) -> str:
        return f"Login({self.user}@{self.host}:{self.port}/{self.dbname})"

    def conninfo(self, addresses: Collection[str], certificate: str | None) -> str:
        """Return libpq's connection string to these addresses. `certificate`: path of a file with `sslrootcert`."""
        values: dict[str, str] = {
            "host": ",".join([self.host] * len(addresses)),
            "hostaddr": ",".join(addresses),
            "port": str(self.port),
            "dbname": self.dbname,
            "user": self.user,
            "password": self.password,
            "sslmode": self.sslmode,
            # Neither a file nor a variable of this process may add anything.
            "passfile": "/nonexistent/pgpass",
            "sslcert": "/nonexistent/certificate",
            "gssencmode": "disable",
            "application_name": "jobqueue-operator",
        }
        if certificate is not None:
            values["sslrootcert"] = certificate
        return make_conninfo("", **values)


def read(data: Mapping[str, str], *, secret: str) -> Login:
    """Read a Secret's data (base64). Raises LoginRefused."""
    found = {name: _decode(data[name], name, secret) for name in FILES if data.get(name)}
    host = found["host"] = found.get("host", "").lower().rstrip(".")
    missing = [name for name in NEEDED if not found.get(name)]
    if missing:
        raise LoginRefused(f"Secret {secret}: has no {', '.join(missing)}; add the key, as plain text")
    port = found.get("port", "5432")
    if not port.isdecimal() or len(port) > len(str(PORT_MOST)) or not 0 < int(port) <= PORT_MOST:
        raise LoginRefused(f"Secret {secret}: port is not a number from 1 to 65535; write e.g. 5432")
    sslmode = found.get("sslmode", "prefer")
    if sslmode not in SSL_MODES:
        raise LoginRefused(f"Secret {secret}: sslmode is not known; write one of {', '.join(sorted(SSL_MODES))}")
    certificate = found.get("sslrootcert", "")
    if certificate and "-----BEGIN CERTIFICATE-----" not in certificate:
        raise LoginRefused(f"Secret {secret}: sslrootcert is not a certificate in PEM; put the text itself there")
    return Login(
        host=host,
        port=int(port),
        dbname=found["dbname"],
        user=found["user"],
        password=found.get("password", ""),
        sslmode=sslmode,
        sslrootcert=certificate,
    )


async def addresses(login: Login, *, secret: str, allowed: Collection[str]) -> list[str]:
    """Return the addresses that a login's host stands for. Raises LoginRefused for one that nobody may aim at."""
    host = login.host
    if "/" in host or "," in host or host.startswith("@"):
        text = "host is not one host name or address; write one, sockets and lists are not taken"
        raise LoginRefused(f"Secret {secret}: {text}")
    try:
        async with asyncio.timeout(LOOKING_UP):
            found = await asyncio.get_running_loop().getaddrinfo(host, login.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise LoginRefused(f"Secret {secret}: host {host} could not be looked up within {LOOKING_UP:g}s") from None
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LoginRefused(f"Secret {secret}: host {host} cannot be looked up ({why}); check the name") from None
    listed = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not listed:  # libpq would take its default, a socket
        raise LoginRefused(f"Secret {secret}: host {host} has no address; check the name")
    for address in listed:
        what = _forbidden(address)
        if what is not None and host not in allowed and address not in allowed:
            raise LoginRefused(
                f"Secret {secret}: host {host} is {what} ({address}); name the database's own address, or have the "
                "operator's settings allow this host"
            )
    return listed


def _forbidden(text: str) -> str | None:
    address = ipaddress.ip_address(text.split("%", 1)[0])
    both = (address,) if isinstance(address, ipaddress.IPv4Address) else (address, *_inside(address))
    for what in ("loopback", "link_local", "unspecified", "multicast"):
        if any(getattr(each, f"is_{what}") for each in both):
            return f"a {what.replace('_', '-')} address"
    return None


def _inside(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 address that packets to this one end at, where it names one: mapped, 6to4, or by NAT64."""
    translated = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    return [each for each in (address.ipv4_mapped, address.sixtofour, translated) if each is not None]


def _decode(value: str, name: str, secret: str) -> str:
    try:
        text = base64.b64decode(value, validate=True).decode().strip("\r\n")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise LoginRefused(f"Secret {secret}: {name} is not text in UTF-8; write it as text") from None
    if "\0" in text or len(text.encode()) > VALUE_MOST:
        raise LoginRefused(f"Secret {secret}: {name} is longer than {VALUE_MOST} bytes, or holds a NUL; correct it")
    return text
