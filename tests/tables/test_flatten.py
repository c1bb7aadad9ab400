"""Flat keys tell nested settings apart."""

from hypothesis import given
from hypothesis import strategies as st

from reprolab.tables import flatten

words = st.text("abc", min_size=1, max_size=3)
leaves = st.none() | st.booleans() | st.integers() | words
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
)


@given(st.dictionaries(words, nested, max_size=4))
def test_every_leaf_is_where_its_path_says(settings):
    for key, value in flatten(settings):
        here = settings
        for part in key.split("."):
            here = here[int(part)] if isinstance(here, list) else here[part]
        assert here == value
        assert not value or not isinstance(value, dict | list)


@given(st.dictionaries(words, nested, max_size=4))
def test_no_two_leaves_share_a_path(settings):
    keys = [key for key, _ in flatten(settings)]
    assert len(keys) == len(set(keys))
