"""Tensors are matched by name, dtype and shape, in the order of a."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reprolab.comparison.matching import LayoutDifference, match
from reprolab.vocabulary import Layout, TensorSpec

specs = st.lists(
    st.builds(
        TensorSpec,
        st.sampled_from("abcdefg"),
        st.sampled_from(["float32", "bfloat16"]),
        st.sampled_from([(2,), (3, 1)]),
    ),
    max_size=7,
    unique_by=lambda spec: spec.name,
).map(lambda held: Layout(tuple(held)))


@given(specs, specs)
def test_every_tensor_is_matched_or_named(a, b):
    found = match(a, b)
    ours = np.array(a.tensors, object)[found.in_a]
    theirs = np.array(b.tensors, object)[found.in_b]
    assert list(ours) == list(theirs) == list(found.tensors)
    names = {spec.name for spec in found.tensors}
    assert names | set(found.unmatched) == set(a.names) | set(b.names)
    assert not names & set(found.unmatched)
    assert found.identical == (a.tensors == b.tensors)


def test_a_difference_says_which_side_holds_what():
    small, large = TensorSpec("w", "float32", (2,)), TensorSpec("w", "float32", (3,))
    assert str(LayoutDifference("params", "w", small, large)) == (
        "w is float32 [2] in a, float32 [3] in b"
    )
    assert str(LayoutDifference("params", "w", None, large)) == "w (float32 [3]) only in b"


def test_block_sizes_need_not_agree():
    spec = (TensorSpec("w", "float32", (64,)),)
    assert match(Layout(spec, 64), Layout(spec, 128)).identical
