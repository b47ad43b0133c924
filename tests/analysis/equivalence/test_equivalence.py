"""The prover accepts plans with equal results. For other plans, the message names a difference.

Each rule has a case.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random

import pytest
import torch

import workbench
from tests.analysis.equivalence.plans import plan
from workbench.analysis.equivalence.prove import prove
from workbench.analysis.equivalence.rewrite_rules import RULES
from workbench.analysis.equivalence.terms import Move, contiguous
from workbench.core.graph import Graph

STEP = """
    take x, w
    t = tanh($x)
    y = mul($t, $w)
    return y
    hand t, w
    cotangent dy
    p = mul($dy, $w)
    q = tanh_backward($p, $t)
    r = mul($dy, $t)
    gradients q, r
"""

EQUAL = {
    "the same": (STEP, STEP),
    "other names": (STEP, STEP.replace("$p", "$pp").replace("p =", "pp =")),
    "computed again": (STEP, STEP.replace("hand t, w", "hand x, w").replace("p = mul", "t = tanh($x)\n    p = mul")),
    "in another order": (
        STEP,
        STEP.replace(
            "    q = tanh_backward($p, $t)\n    r = mul($dy, $t)", "    r = mul($dy, $t)\n    q = tanh_backward($p, $t)"
        ),
    ),
    "a common subexpression once": (
        "take x\na = tanh($x)\nb = tanh($x)\ny = add($a, $b)\nreturn y",
        "take x\na = tanh($x)\ny = add($a, $a)\nreturn y",
    ),
    "passed to the backward under another name": (
        STEP,
        STEP.replace("hand t, w", "hand t as u, w").replace("$t)\n    g", "$u)\n    g").replace("($p, $t)", "($p, $u)"),
    ),
    "read before the write in both": (
        "take a, b\nt = clone($a)\nc in 1 = copy_($b, $a)\nd in 1 = copy_($t, $b)\nreturn c",
        "take a, b\nt = clone($a)\nc in 1 = copy_($b, $a)\nd in 1 = copy_($t, $b)\nreturn c",
    ),
    "a write that another write overwrites": (
        "take a, b\nt = tanh($b)\nc in 1 = copy_($t, $a)\nd in 1 = copy_($b, $a)\nreturn b",
        "take a, b\nd in 1 = copy_($b, $a)\nreturn b",
    ),
    "a view made before or after the write": (
        "take a, b\nv in 0 = view($a, (2, 2))\nc in 1 = copy_($b, $a)\ny = tanh($v)\nreturn y",
        "take a, b\nc in 1 = copy_($b, $a)\nv in 0 = view($a, (2, 2))\ny = tanh($v)\nreturn y",
    ),
}

DIFFERENT = {
    "arguments swapped": (
        "take x, w\ny = sub($x, $w)\nreturn y",
        "take x, w\ny = sub($w, $x)\nreturn y",
        "reads w, but the stock plan reads x",
    ),
    "a changed constant": (
        "take x\ny = add($x, 0x1.0p+0)\nreturn y",
        "take x\ny = add($x, 0x1.8p+0)\nreturn y",
        "in the stock plan it computes add($, 0x1.0p+0)",
    ),
    "another output": (
        "take x\na = sin($x)\nb = cos($x)\nreturn a, b",
        "take x\na = sin($x)\nb = cos($x)\nreturn b, a",
        "output 0",
    ),
    "fewer outputs": (
        "take x\na = sin($x)\nreturn a, x",
        "take x\na = sin($x)\nreturn a",
        "there are 1 outputs; the stock plan has 2",
    ),
    "gradients swapped": (STEP, STEP.replace("gradients q, r", "gradients r, q"), "gradient 0"),
    "a missing gradient": (STEP, STEP.replace("gradients q, r", "gradients q, -"), "gradient 1"),
    "saved tensors swapped": (STEP, STEP.replace("hand t, w", "hand t as w, w as t"), "whose content then differs"),
    "read by the backward without being passed to it": (
        STEP,
        STEP.replace("hand t, w", "hand w"),
        "whose content then differs",
    ),
    "a dropped write": (
        "take a, b\nc in 1 = copy_($b, $a)\nreturn b",
        "take a, b\nreturn b",
        "copy_ writes in place in the stock plan, but no statement of this plan does",
    ),
    "an additional write": ("take a, b\nreturn b", "take a, b\nc in 1 = copy_($b, $a)\nreturn b", "copy_"),
    "a read before the write": (
        "take a, b\nc in 1 = copy_($b, $a)\ny = tanh($a)\nreturn y",
        "take a, b\ny = tanh($a)\nc in 1 = copy_($b, $a)\nreturn y",
        "tanh reads a, whose content then differs from the stock plan",
    ),
    "a read after the write": (
        "take a, b\nt = clone($a)\nc in 1 = copy_($b, $a)\nd in 1 = copy_($t, $b)\nreturn b",
        "take a, b\nc in 1 = copy_($b, $a)\nt = clone($a)\nd in 1 = copy_($t, $b)\nreturn b",
        "clone reads a, whose content then differs",
    ),
    "a write through a view of other elements": (
        "take a, b\nv in 0 = select($a, 0)\nc in 1 = copy_($b, $v)\nreturn b",
        "take a, b\nv in 0 = select($a, 1)\nc in 1 = copy_($b, $v)\nreturn b",
        "select",
    ),
    "a copy in the place of a view": (
        "take a, b\nv in 0 = view($a, (2, 2))\nc in 1 = copy_($b, $a)\ny = tanh($v)\nreturn y",
        "take a, b\nv = view($a, (2, 2))\nc in 1 = copy_($b, $a)\ny = tanh($v)\nreturn y",
        "tanh",
    ),
    "two writes in the other order": (
        "take a, b, d\nc in 1 = copy_($b, $a)\ne in 1 = copy_($d, $a)\nreturn b",
        "take a, b, d\ne in 1 = copy_($d, $a)\nc in 1 = copy_($b, $a)\nreturn b",
        "the content of a after the forward differs",
    ),
    "draws in the other order": (
        "take x\nr = uniform((4), 0x0p+0)\ns = normal((4))\ny = sub($r, $s)\nreturn y",
        "take x\ns = normal((4))\nr = uniform((4), 0x0p+0)\ny = sub($r, $s)\nreturn y",
        "in its position among random draws",
    ),
    "one draw for two": (
        "take x\nr = uniform((4))\ns = uniform((4))\ny = sub($r, $s)\nreturn y",
        "take x\nr = uniform((4))\ny = sub($r, $r)\nreturn y",
        "sub reads r, but the stock plan reads s",
    ),
    "a missing draw that nothing reads": (
        "take x\nr = uniform((4))\nreturn x",
        "take x\nreturn x",
        "this plan draws random numbers 0 times; the stock plan draws 1 times",
    ),
    "drawn again in the backward": (
        "take x\nr = uniform((4))\ny = mul($x, $r)\nreturn y\nhand r\ncotangent dy\ng = mul($dy, $r)\ngradients g",
        "take x\nr = uniform((4))\ny = mul($x, $r)\nreturn y\n"
        "cotangent dy\nr = uniform((4))\ng = mul($dy, $r)\ngradients g",
        "uniform",
    ),
    "read without waiting": (
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\ny = tanh($g)\nreturn y",
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\ny = tanh($f)\nreturn y",
        "tanh reads f, but the stock plan reads g",
    ),
    "never waited for": (
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\nreturn x",
        "take x\nf = all_gather($x, group 0)\nreturn x",
        "never waited for",
    ),
    "never waited for in the stock plan": (
        "take x\nf = all_gather($x, group 0)\nreturn x",
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\nreturn x",
        "wait computes a value that no statement of the stock plan computes",
    ),
    "never waited for in the stock plan, and waited for earlier": (
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\nh = all_gather($x, group 0)\nreturn x",
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\nh = all_gather($x, group 0)\nk = wait($h)\nreturn x",
        "a collective is waited for, but never in the stock plan",
    ),
    "sent and never waited for in the stock plan only": (
        "take x\nf = all_gather($x, group 0)\nreturn x",
        "take x\nreturn x",
        "the stock plan sends a collective that this plan does not send",
    ),
    "sent in another order and never waited for": (
        "take x, y\nf = all_gather($x, group 0)\nh = all_gather($y, group 0)\nreturn x",
        "take x, y\nh = all_gather($y, group 0)\nf = all_gather($x, group 0)\nreturn x",
        "are sent in another order than in the stock plan",
    ),
    "in another group": (
        "take x\nf = all_gather($x, group 0)\ng = wait($f)\nreturn g",
        "take x\nf = all_gather($x, group 1)\ng = wait($f)\nreturn g",
        "all_gather computes all_gather($, group 1); in the stock plan it computes all_gather($, group 0)",
    ),
    "written while it is sent": (
        "take a, b\nf = all_gather($a, group 0)\ng = wait($f)\nc in 1 = copy_($b, $a)\nreturn g",
        "take a, b\nf = all_gather($a, group 0)\nc in 1 = copy_($b, $a)\ng = wait($f)\nreturn g",
        "wait",
    ),
}

HALF = {"x": "float16[4]@cpu", "back": "float16[4]@cpu"}
GATHERED = dict.fromkeys(("f", "h", "g", "k", "y"), "float32[8]@cpu") | {
    "packed": "float32[8]@cpu",
    "sent": "float32[16]@cpu",
    "all": "float32[16]@cpu",
}
GATHERS = """
    take a, b
    f = all_gather($a, group 0, True, 0)
    h = all_gather($b, group 0, True, 0)
    g = wait($f)
    k = wait($h)
    y = sub($g, $k)
    return y
"""
BUCKET = """
    take a, b
    packed = bucket_pack(($a, $b))
    sent = all_gather($packed, group 0, True, 0)
    all = wait($sent)
    g, k = bucket_unpack_gather($all, ((8), (8)), 2)
    y = sub($g, $k)
    return y
"""
STORED = """
    take x
    t = tanh($x)
    o = offload_0($t)
    return t
    hand o
    cotangent dy
    l = reload_0($o)
    d in 0 = reloaded_0($l)
    g = mul($dy, $d)
    gradients g
"""

SQUARE = {"b": "float32[4,4]@cpu", "e": "float32[4,4]@cpu", "u": "float32[1,4]@cpu", "h": "float32[2]@cpu"}
WRITTEN_IN_PARTS = """
    take b, h
    u in 0 = __getitem__($b, (slice(1, 2))) from 4,4;1,4;4,1;4
    v in 0 = squeeze($u, 0) from 1,4;4;1;0
    w in 0 = __getitem__($v, (slice(2, 4))) from 4;2;1;2
    c in 1 = copy_($h, $w)
    return b
"""
WRITTEN_AT_ONCE = """
    take b, h
    w in 0 = __getitem__($b, (1, slice(2, 4))) from 4,4;2;1;6
    c in 1 = copy_($h, $w)
    return b
"""

BY_RULE: dict[str, tuple[Graph, Graph, Graph]] = {
    "fence": (
        plan("take a, b, x\nf, h in 0,1 = update_aliases(($a, $b))\nc in 1 = copy_($x, $f)\nreturn x"),
        plan("take a, b, x\nc in 1 = copy_($x, $a)\nreturn x"),
        # The outputs of the fence are swapped.
        plan("take a, b, x\nf, h in 0,1 = update_aliases(($a, $b))\nc in 1 = copy_($x, $h)\nreturn x"),
    ),
    "shallow copy": (
        plan("take x\ns in 0 = shallow_copy($x)\ny = tanh($s)\nreturn y"),
        plan("take x\ny = tanh($x)\nreturn y"),
        plan("take x\ns = clone_and_scale($x)\ny = tanh($s)\nreturn y"),
    ),
    "moved elements": (
        plan("take x\ne in 0 = expand($x, (4, 4)) from 4;4,4;0,1;0\nreturn e", SQUARE),
        plan(
            "take x\nu in 0 = unsqueeze($x, 0) from 4;1,4;4,1;0\n"
            "e in 0 = expand($u, (4, 4)) from 1,4;4,4;0,1;0\nreturn e",
            SQUARE,
        ),
        # The elements expand along the other dimension.
        plan(
            "take x\nu in 0 = unsqueeze($x, 1) from 4;4,1;1,1;0\n"
            "e in 0 = expand($u, (4, 4)) from 4,1;4,4;1,0;0\nreturn e",
            {**SQUARE, "u": "float32[4,1]@cpu"},
        ),
    ),
    "redundant cast": (
        plan("take x\nc = to($x, torch.float32)\ny = tanh($c)\nreturn y"),
        plan("take x\ny = tanh($x)\nreturn y"),
        plan("take x\nc = to($x, torch.float16)\ny = tanh($c)\nreturn y", {"c": "float16[4]@cpu"}),
    ),
    "cast there and back": (
        plan("take x\nwide = to($x, torch.float32)\nback = to($wide, torch.float16)\ny = tanh($back)\nreturn y", HALF),
        plan("take x\ny = tanh($x)\nreturn y", HALF),
        # The intermediate type, bfloat16, has less precision.
        plan(
            "take x\nnarrow = to($x, torch.bfloat16)\nback = to($narrow, torch.float16)\ny = tanh($back)\nreturn y",
            HALF | {"narrow": "bfloat16[4]@cpu"},
        ),
    ),
    "cast on the way": (
        plan(
            "take x\nb = to($x, torch.bfloat16)\nh = to($b, torch.float16)\nreturn h",
            {"b": "bfloat16[4]@cpu", "h": "float16[4]@cpu"},
            executor="nvfuser",
        ),
        plan("take x\nh = to($x, torch.float16)\nreturn h", {"h": "float16[4]@cpu"}, executor="nvfuser"),
        # The intermediate type is an integer, which drops the fraction.
        plan(
            "take x\nb = to($x, torch.int32)\nh = to($b, torch.float16)\nreturn h",
            {"b": "int32[4]@cpu", "h": "float16[4]@cpu"},
            executor="nvfuser",
        ),
    ),
    "bucket": (
        plan(GATHERS, GATHERED),
        plan(BUCKET, GATHERED),
        plan(BUCKET.replace("g, k =", "k, g ="), GATHERED),
    ),
    "reduction in place": (
        plan("take x\nt = neg($x)\nr = all_reduce($t, sum, group 0, True, False)\nw = wait($r)\nreturn w"),
        plan("take x\nt = neg($x)\nr in 0 = all_reduce($t, sum, group 0, True, True)\nw in 0 = wait($r)\nreturn w"),
        # The all-reduce in place takes the maximum, not the sum.
        plan("take x\nt = neg($x)\nr in 0 = all_reduce($t, max, group 0, True, True)\nw in 0 = wait($r)\nreturn w"),
    ),
    "offload": (
        plan("take x\nt = tanh($x)\nreturn t\nhand t\ncotangent dy\ng = mul($dy, $t)\ngradients g"),
        plan(STORED, {"o": "uint8[16]@cpu"}),
        plan(STORED.replace("($dy, $d)", "($dy, $l)"), {"o": "uint8[16]@cpu"}),
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_plans_are_proven_without_any_rule(case: str) -> None:
    stock, other = map(plan, EQUAL[case])
    for one, another in ((stock, other), (other, stock)):
        proof = prove(one, another)
        assert proof.proven, proof
        assert proof.rules == ()


@pytest.mark.parametrize("case", DIFFERENT)
def test_plans_with_other_results_are_refused_with_a_message(case: str) -> None:
    stock, other, words = DIFFERENT[case]
    proof = prove(plan(stock), plan(other))
    assert not proof.proven
    assert words in proof.message
    assert not prove(plan(other), plan(stock)).proven


def test_every_rule_has_a_test_and_a_reason() -> None:
    assert set(BY_RULE) == set(RULES)
    assert all(rule.name == name and rule.allows and rule.reason for name, rule in RULES.items())


def test_the_documentation_lists_the_rules_of_the_code() -> None:
    text = (Path(workbench.__file__).parent.parent / "docs" / "explanation" / "proof.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| rule |")]
    assert rows == [f"| {rule.name} | {rule.allows} | {rule.reason} |" for rule in RULES.values()]


@pytest.mark.parametrize("name", BY_RULE)
def test_a_rule_is_applied_and_named_and_a_near_miss_is_refused(name: str) -> None:
    stock, applied, near_miss = BY_RULE[name]
    for one, another in ((stock, applied), (applied, stock)):
        proof = prove(one, another)
        assert proof.proven, proof
        assert name in proof.rules
    assert not prove(stock, near_miss).proven
    assert not prove(applied, near_miss).proven


@pytest.mark.parametrize("name", BY_RULE)
def test_a_rule_that_both_plans_need_is_not_named(name: str) -> None:
    for one in BY_RULE[name][:2]:
        assert prove(one, one).rules == ()


def test_a_cast_on_the_way_is_ignored_only_in_nvfuser_fusions() -> None:
    stock, applied, _ = BY_RULE["cast on the way"]
    plain = [dataclasses.replace(g.statements, executor=("",) * len(g.statements)) for g in (stock, applied)]
    one, other = (dataclasses.replace(g, statements=s) for g, s in zip((stock, applied), plain, strict=True))
    assert not prove(one, other).proven


def test_a_write_through_nested_views_reaches_the_same_elements() -> None:
    one, other = (plan(text, {**SQUARE, "w": "float32[2]@cpu"}) for text in (WRITTEN_IN_PARTS, WRITTEN_AT_ONCE))
    assert prove(one, other).rules == ("moved elements",)
    elsewhere = plan(WRITTEN_AT_ONCE.replace(";1;6", ";1;5"), {**SQUARE, "w": "float32[2]@cpu"})
    assert not prove(one, elsewhere).proven


def random_view(tensor: torch.Tensor, random: Random) -> torch.Tensor:
    """Return a random view of a tensor, or a reshape that must copy."""
    dim = random.randrange(tensor.dim())
    length = tensor.shape[dim]
    return random.choice(
        (
            lambda: tensor.transpose(dim, random.randrange(tensor.dim())),
            lambda: tensor.unsqueeze(dim),
            lambda: tensor.unsqueeze(dim).expand(*tensor.shape[:dim], 2, *tensor.shape[dim:]),
            lambda: tensor.narrow(dim, length // 3, length - length // 3),
            lambda: tensor[(slice(None),) * dim + (slice(0, None, 2),)],
            lambda: tensor.flatten(),
            lambda: tensor.reshape(*tensor.shape[:dim], -1, *tensor.shape[dim + 1 :], 1),
            lambda: tensor.reshape(-1, length),
            lambda: tensor.squeeze(),
            lambda: tensor if tensor.dim() == 1 else tensor.select(dim, length - 1),
        )
    )()


def test_nested_views_select_the_elements_that_pytorch_selects() -> None:
    random, composed = Random(0), 0
    for _ in range(400):
        whole = torch.arange(24).reshape(random.choice(((24,), (4, 6), (2, 3, 4), (1, 24), (2, 1, 12))))
        tensor, move = whole, Move(tuple(whole.shape), tuple(whole.shape), contiguous(whole.shape), 0)
        for _ in range(4):
            if not tensor.dim() or tensor.numel() > 500:
                break
            state = random.getstate()
            made = random_view(tensor, random)
            random.setstate(state)
            alone = random_view(torch.empty(tensor.shape, device="meta"), random)
            after = Move.of(tuple(tensor.shape), tuple(alone.shape), alone.stride(), int(alone.storage_offset()))
            found = move.compose(after)
            if found is None:
                break
            tensor, move, composed = made, found, composed + 1
            assert torch.equal(whole.reshape(-1).as_strided(move.shape, move.strides, move.offset), tensor)
    assert composed > 1000


def test_if_an_all_reduce_in_place_overwrites_a_value_that_is_read_later_the_proof_refuses() -> None:
    sent = "take x\nt = neg($x)\nr = all_reduce($t, sum, group 0, True, False)\nw = wait($r)\ny = add($w, $t)\nreturn y"
    assert not prove(
        plan(sent), plan(sent.replace("r =", "r in 0 =").replace("False", "True").replace("w =", "w in 0 ="))
    ).proven


def test_the_message_names_the_users_line_of_the_first_difference() -> None:
    proof = prove(plan(STEP), plan(STEP.replace("p = mul($dy, $w)", "p = mul($w, $w)")))
    assert proof.source == "plan.py:7  p = mul($w, $w)"
    assert proof.statement == 2
    assert proof.message == "plan.py:7  p = mul($w, $w): mul reads w, but the stock plan reads dy"


def test_a_graph_without_computations_is_not_proven() -> None:
    stock = plan(STEP)
    silent = dataclasses.replace(stock.statements, computes=("",) * len(stock.statements))
    assert not prove(stock, dataclasses.replace(stock, statements=silent)).proven
    both = dataclasses.replace(stock, statements=silent)
    assert not prove(both, both).proven


def test_a_graph_keeps_its_computations_through_json() -> None:
    stock = plan(BUCKET, GATHERED)
    again = Graph.from_json(stock.to_json())
    assert again.ends == stock.ends
    assert again.statements.computes == stock.statements.computes
    assert prove(stock, again).proven
