"""Values into JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import payload

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**200), 10**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="ascii")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_read_is_what_json_reads(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    read = payload.decode(text)
    assert read == json.loads(text)
    assert json.dumps(read) == json.dumps(json.loads(text))  # 1 and 1.0 and True are not the same


@pytest.mark.parametrize("depth", [64, 200, 500])
def test_deep_values_are_read(depth: int) -> None:
    text = "[" * depth + "]" * depth
    assert payload.decode(text) == json.loads(text)


@pytest.mark.parametrize("digits", [1_000, 4_000])
def test_long_integers_are_read(digits: int) -> None:
    assert payload.decode("7" * digits) == int("7" * digits)
