"""Settings from the command line and the environment, for every long-running command alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from jobqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_settings import BaseSettings

S = TypeVar("S", bound="BaseSettings")


def read(model: type[S], given: Mapping[str, Any], *, what: str) -> S:
    """Read a settings model: `given` (None: not given) over the environment over the defaults.

    Raises ConfigurationError beginning with `what` and naming every wrong field; never shows a value, which may be a
    password.
    """
    values = {name: value for name, value in given.items() if value is not None}
    for name in ("dsn", "listen_dsn"):
        if f"{name}_dir" in values:
            values.setdefault(name, None)  # a folder named on the command line comes before JOBQUEUE_DSN
    try:
        return model(**values)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'settings'}: {each['msg']}"
            for each in error.errors(include_input=False, include_context=False, include_url=False)
        )
        raise ConfigurationError(f"{what} settings: {wrong}") from None
