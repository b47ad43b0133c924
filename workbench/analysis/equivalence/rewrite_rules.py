"""All rewrites that a proof accepts: plans that differ only by these rewrites compute the same results."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RewriteRule:
    """A rewrite by which two plans may differ and still compute the same results.

    Attributes
    ----------
    name, allows, reason : str
        Name of the rule, the two forms that the rule treats as equal, and the reason why their results are equal.
    """

    name: str
    allows: str
    reason: str


RULES: dict[str, RewriteRule] = {
    rule.name: rule
    for rule in (
        RewriteRule(
            "fence",
            "each output of `update_aliases`, and the input at the same position",
            "Thunder puts a fence before a write to keep statements in order; the fence returns its inputs and "
            "computes nothing",
        ),
        RewriteRule(
            "shallow copy",
            "the output and the input of `shallow_copy`, and of a reshape or expand that keeps the shape",
            "Thunder uses these operations to rename a value that a gradient rule returns unchanged; neither "
            "elements nor memory change",
        ),
        RewriteRule(
            "moved elements",
            "two chains of views and reshapes that take the same elements of the same value",
            "PyTorch has many functions that only move elements, and Thunder decomposes them inside nvFuser's fusions",
        ),
        RewriteRule(
            "redundant cast",
            "a value, and a conversion to the data type, shape and device that it already has",
            "no element changes; whether the conversion copies memory is tracked separately from the elements",
        ),
        RewriteRule(
            "cast there and back",
            "a value, and its cast to a wider floating point type and back",
            "the wide type contains every number of the narrow type, so the second cast is exact",
        ),
        RewriteRule(
            "cast on the way",
            "under nvFuser, two successive casts between floating point types, and the second cast alone",
            "Thunder's nvFuser executor drops the first cast if both casts are in one fusion, and so rounds one "
            "time less",
        ),
        RewriteRule(
            "bucket",
            "one collective on packed tensors that are unpacked afterwards, and the same collective on each tensor",
            "each element is sent and comes back at its own position; its result depends on no other element",
        ),
        RewriteRule(
            "reduction in place",
            "an all-reduce that overwrites its operand, and an all-reduce that allocates its result",
            "only the memory of the result differs; overwriting the operand is tracked as a write",
        ),
        RewriteRule(
            "offload",
            "a value before its offload, and the value after it was loaded back",
            "the bytes are copied to the host and back, with each view's shape and strides; before the transfer is "
            "done, the value cannot be read",
        ),
    )
}
