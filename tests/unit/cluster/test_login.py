"""A Secret cannot aim the operator: what it says is what is connected to, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from jobqueue.connect import FILES, ConnInfo
from jobqueue_operator.cluster import login as module
from jobqueue_operator.cluster.login import SSL_MODES, Login, LoginRefused, addresses, read

PASSWORD = "pa55word"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
GIVEN = {"host": "db.shop.example", "dbname": "shop", "user": "operator", "password": PASSWORD}


def encoded(**values: str | bytes) -> dict[str, str]:
    return {k: base64.b64encode(v if isinstance(v, bytes) else v.encode()).decode() for k, v in values.items()}


def refusal(data: dict[str, str]) -> str:
    with pytest.raises(LoginRefused) as caught:
        read(data, secret="shop-operator")
    said = str(caught.value)
    assert said.startswith("Secret shop-operator: ")
    assert PASSWORD not in said
    return said


def test_what_is_not_said_has_a_default() -> None:
    found = read(encoded(**GIVEN), secret="s")
    assert found == Login("db.shop.example", 5432, "shop", "operator", PASSWORD, "prefer", "")


def test_a_login_s_text_shows_no_password() -> None:
    assert PASSWORD not in f"{read(encoded(**GIVEN), secret='s')!r} {read(encoded(**GIVEN), secret='s')}"


def test_a_key_that_is_not_listed_is_not_read() -> None:
    assert read(encoded(**GIVEN | {"keystore": b"\xff"}), secret="s") == read(encoded(**GIVEN), secret="s")


def test_lines_end_and_case_and_the_root_s_dot_do_not_matter() -> None:
    found = read(encoded(**GIVEN | {"host": "DB.Shop.Example.\n", "dbname": "Shop\r\n"}), secret="s")
    assert (found.host, found.dbname) == ("db.shop.example", "Shop")


@pytest.mark.parametrize("key", ["host", "dbname", "user"])
@pytest.mark.parametrize("empty", [None, "", "\n"])
def test_a_key_that_is_needed(key: str, empty: str | None) -> None:
    data = {k: v for k, v in encoded(**GIVEN | {key: empty or ""}).items() if k != key or empty is not None}
    assert refusal(data) == f"Secret shop-operator: has no {key}; add the key, as plain text"


def test_a_host_that_is_nothing_but_a_dot_is_none() -> None:
    assert "has no host" in refusal(encoded(**GIVEN | {"host": "."}))


@pytest.mark.parametrize(
    ("key", "value", "reason", "remedy"),
    [
        *(
            ("port", port, "not a number from 1 to 65535", "write e.g. 5432")
            for port in ("0", "65536", "-1", "5432,5433", "postgres", "5432 ", "9" * 5000, "/tmp")  # noqa: S108 - refused
        ),
        ("sslmode", "on", "is not known", "write one of allow, disable"),
        ("sslrootcert", "/etc/ssl/ca.pem", "is not a certificate in PEM", "put the text itself there"),
        ("sslrootcert", "system", "is not a certificate in PEM", "put the text itself there"),
        ("user", "a\0b", "holds a NUL", "correct it"),
        ("password", PASSWORD + "x" * 65_536, "longer than 65536 bytes", "correct it"),
        ("password", PASSWORD + "ø" * 32_768, "longer than 65536 bytes", "correct it"),
        ("password", PASSWORD.encode() + b"\xff", "is not text in UTF-8", "write it as text"),
    ],
)
def test_a_value_that_cannot_be(key: str, value: str | bytes, reason: str, remedy: str) -> None:
    said = refusal(encoded(**GIVEN | {key: value}))
    assert f"Secret shop-operator: {key} " in said
    assert reason in said
    assert remedy in said


def test_data_that_is_no_base64() -> None:
    assert "dbname is not text" in refusal(encoded(**GIVEN) | {"dbname": "no base64!"})


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: text.strip("\r\n") == text
) | st.sampled_from(
    ["x options='-c search_path=evil'", "a' host='evil", "\\", "\\'", "service=evil", "postgresql://evil/db", "=", " "]
)


@settings(max_examples=150)
@given(
    dbname=texts,
    user=texts,
    password=texts | st.just(""),
    port=st.integers(1, 65_535),
    sslmode=st.sampled_from(sorted(SSL_MODES)),
    other=st.dictionaries(st.sampled_from(["options", "service", "passfile", "hostaddr", "sslkey"]), texts),
)
def test_whatever_is_given_libpq_reads_that_and_nothing_else(
    dbname: str, user: str, password: str, port: int, sslmode: str, other: dict[str, str]
) -> None:
    given_ = {"host": "db", "port": str(port), "dbname": dbname, "user": user, "sslmode": sslmode}
    found = read(encoded(**given_ | {"password": password} | other), secret="s")
    parsed = conninfo_to_dict(found.conninfo(["10.0.0.1", "10.0.0.2"], None))
    fixed = {"passfile": "/nonexistent/pgpass", "sslcert": "/nonexistent/certificate", "gssencmode": "disable"}
    expected = (
        given_
        | fixed
        | {
            "host": "db,db",
            "hostaddr": "10.0.0.1,10.0.0.2",
            "password": password,
            "application_name": "jobqueue-operator",
        }
    )
    assert {k: str(v) for k, v in parsed.items()} == expected


def test_the_certificate_is_a_file_of_ours_and_the_last_step_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "the operator's own")
    found = read(encoded(**GIVEN | {"password": "", "sslrootcert": CERTIFICATE}), secret="s")
    assert found.sslrootcert == CERTIFICATE
    parsed = conninfo_to_dict(ConnInfo(found.conninfo(["10.0.0.1"], "/run/ca.pem"), None).conninfo())
    assert (parsed["sslrootcert"], parsed["password"]) == ("/run/ca.pem", "")
    more = {"hostaddr", "passfile", "sslcert", "gssencmode", "application_name", "connect_timeout", "tcp_user_timeout"}
    assert parsed.keys() <= {*FILES, *more, "keepalives_idle", "keepalives_interval", "keepalives_count"}


def login(host: str) -> Login:
    return Login(host.lower().rstrip("."), 5432, "shop", "operator", PASSWORD)


async def aimed(host: str, *allowed: str) -> list[str]:
    return await addresses(login(host), secret="shop-operator", allowed=allowed)


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.10", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("localhost", "loopback"),
        ("LocalHost.", "loopback"),
        ("127.1", "loopback"),
        ("0x7f000001", "loopback"),
        ("2130706433", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("fe80::1", "link-local"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - refused
        ("0", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
    ],
)
async def test_nobody_aims_at_what_listens_beside_the_operator(host: str, what: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        await aimed(host)
    said = str(caught.value)
    assert f"is a {what} address" in said
    assert "Secret shop-operator: host " in said
    assert "have the operator's settings allow this host" in said
    assert PASSWORD not in said


@pytest.mark.parametrize("host", ["/var/run/postgresql", "@socket", "a,b", "10.0.0.1,127.0.0.1", "../x"])
async def test_a_socket_or_a_list_is_no_host(host: str) -> None:
    with pytest.raises(LoginRefused, match="sockets and lists are not taken"):
        await aimed(host, host)


async def test_an_address_elsewhere_passes() -> None:
    assert await aimed("10.1.2.3") == ["10.1.2.3"]
    assert await aimed("fd00::1") == ["fd00::1"]


async def test_a_host_that_is_allowed_passes_by_its_name_or_its_address() -> None:
    assert "127.0.0.1" in await aimed("LOCALHOST", "localhost")
    assert await aimed("127.1", "127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(LoginRefused):
        await aimed("127.0.0.2", "localhost", "127.0.0.1")


def names(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 5432)) for each in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_a_name_with_one_good_address_and_one_bad_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, ["10.0.0.1", "169.254.169.254"])
    with pytest.raises(LoginRefused, match=r"169\.254\.169\.254"):
        await aimed("db.example")


async def test_a_name_s_addresses_are_said_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, ["10.0.0.1", "10.0.0.2", "10.0.0.1"])
    assert await aimed("db.example") == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "cannot be looked up .Name or service not known.; check"),
        (UnicodeError("label too long"), "cannot be looked up .label too long.; check"),
        ([], "has no address; check the name"),
        (None, "could not be looked up within"),
    ],
)
async def test_a_name_that_stands_for_nothing(monkeypatch: pytest.MonkeyPatch, answer: Any, said: str) -> None:
    names(monkeypatch, answer)
    monkeypatch.setattr(module, "LOOKING_UP", 0.01)
    with pytest.raises(LoginRefused, match=rf"host db\.example {said}"):
        await aimed("db.example")
