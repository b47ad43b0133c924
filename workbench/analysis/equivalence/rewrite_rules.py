"""The named rules by which two plans may differ and still be equal; there are no others."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RewriteRule:
    """A way in which two plans may differ and still be equal.

    Attributes
    ----------
    name, allows, reason : str
        Its name, the difference that it allows, and the reason why that is right.
    """

    name: str
    allows: str
    reason: str


RULES: dict[str, RewriteRule] = {
    rule.name: rule
    for rule in (
        RewriteRule(
            "fence",
            "each output of `update_aliases` is the input at its place",
            "Thunder puts it before a write to keep statements in order; it hands its inputs on and computes nothing",
        ),
        RewriteRule(
            "shallow copy",
            "the output of `shallow_copy`, and of a reshape or expand to the shape that there is, is its input",
            "Thunder renames a value with it where a gradient rule hands it on; no element changes, nor its memory",
        ),
        RewriteRule(
            "moved elements",
            "a view or reshape of a view is one of what that is a view of, told by where its elements come from",
            "PyTorch has many functions that only move elements, and Thunder takes them apart inside nvFuser's fusions",
        ),
        RewriteRule(
            "redundant cast",
            "a cast to the data type, shape and device that a value has already is that value",
            "no element changes; whether it is a copy in memory of its own is followed apart from what it holds",
        ),
        RewriteRule(
            "cast there and back",
            "a cast to a wider floating point type and back is the value before it",
            "every number of the narrow type is one of the wide type, so that the way back is exact",
        ),
        RewriteRule(
            "cast on the way",
            "under nvFuser, a cast of a cast between floating point types is the last cast alone",
            "Thunder's nvFuser executor drops the type in between wherever both casts meet, and so rounds once less",
        ),
        RewriteRule(
            "bucket",
            "one collective on packed tensors, unpacked, is that collective on each of them",
            "elements are sent side by side and come back at their own places; an element's result hangs on no other",
        ),
        RewriteRule(
            "reduction in place",
            "an all-reduce into the memory that it is given has the result of one into memory of its own",
            "only where the result lies differs; that what was sent is overwritten is followed as a write",
        ),
        RewriteRule(
            "offload",
            "what is brought back from the store and has arrived is what was put there",
            "bytes are copied out and in, with each view's shape and strides; what is on its way has no content yet",
        ),
    )
}
