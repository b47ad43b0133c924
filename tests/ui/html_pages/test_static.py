"""Without a Jupyter kernel, the picture, the text summary, rows of tables and the accuracy figure describe a plan."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from tests.ui.synthetic import llama
from workbench.core.lever import Site
from workbench.runs.log.tensor_error import TensorError
from workbench.runs.measure.accuracy import THUNDER, Accuracy
from workbench.summary import human_bytes, human_count, human_seconds, human_shape, text_summary
from workbench.ui.controls import figure_strip
from workbench.ui.graph import svg
from workbench.ui.graph.node_names import next_option, short_name
from workbench.ui.tabs.peak_table import argument_path
from workbench.ui.tabs.tables import setting_rows, site_rows, trace_lines

SVG = "{http://www.w3.org/2000/svg}"


def words(text: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(text).iter(f"{SVG}text")]


def bench(**changes):
    census = SimpleNamespace(count=4, unique=3, largest=7)
    stock = {
        "warnings": (),
        "corrections": (),
        "proof": SimpleNamespace(proven=True, rules=(), fault=""),
        "statements": 219,
        "peak_bytes": 3 << 20,
        "peak_at_least": False,
        "graph": SimpleNamespace(has_backward=True),
        "reserved": None,
        "saved_bytes": 2 << 20,
        "saved_tensors": 48,
        "census": census,
        "counts": {"compilations": 4, "copies": 0, "sets": 0, "fences": 0, "buckets": 0},
    }
    sites = llama(1)[1]
    site_of = {site.id: site for site in sites}
    plan = SimpleNamespace(**{**stock, "sites": sites, "site_of": site_of, **changes})
    return SimpleNamespace(
        plan=plan,
        stock_plan=SimpleNamespace(**stock, sites=sites),
        program=SimpleNamespace(name="llama", device="cpu", settings={"layers": 1}),
        executor="torchcompile",
        capture="dynamo",
        capture_reason="asked for",
        choices={sites[0].id: "recompute"} if changes else {},
        runs=(),
    )


def test_text_summary_has_the_plan():
    assert text_summary(bench()) == (
        "llama(layers=1) on cpu, torchcompile executor\n"
        "  statements   219\n"
        "  peak memory  3.00 MiB, predicted\n"
        "  saved        2.00 MiB in 48 tensors, predicted\n"
        "  capture      by dynamo: asked for\n"
        "  fusions      3 unique of 4, the largest of 7 ops, predicted\n"
        "  counts       4 compilations, predicted\n"
        "  sites        saved: 12\n"
        "  choices      none\n"
        "  proof        proven equal to the stock plan"
    )


def test_text_summary_shows_changes_against_unmodified_thunder():
    text = text_summary(bench(peak_bytes=2 << 20, saved_bytes=1 << 20))
    assert "  peak memory  2.00 MiB (−1.00 MiB), predicted\n" in text
    assert "  choices      saved:layers.0.attn_norm/mul#0: recompute\n" in text


def test_picture_shows_layers_statements_and_sizes():
    graph, sites = llama(4)
    shown = words(svg.render(graph, sites, title="llama on cpu"))
    assert shown[:2] == ["llama on cpu", "x = self.embedding(tokens)"]
    assert "layers.0 … layers.3, 4 identical layers" in shown
    assert {"forward ↓", "saved for backward", "↑ backward", "768 KiB × 4", "softmax"} <= set(shown)


def test_picture_of_a_long_program_stays_small():
    graph, sites = llama(200, recompute=frozenset(f"saved:layers.{n}.mlp/silu#0" for n in range(0, 200, 2)))
    picture = svg.render(graph, sites, max_height=1000)
    assert len(picture) < 60_000
    assert "The rest is in the app." in words(picture)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (15 << 20, "15.0 MiB"),
        (3 << 30, "3.00 GiB"),
        (-512, "−512 B"),
    ],
)
def test_bytes_have_a_readable_unit(size, text):
    assert human_bytes(size) == text


def test_seconds_counts_and_shapes_are_readable():
    assert [human_seconds(s) for s in (2e-6, 0.0123, 9.5)] == ["2 µs", "12.3 ms", "9.50 s"]
    assert [human_seconds(s) for s in (0.0, 3.4e-7, 1e-12, 9.999e-7, -0.003)] == [
        "0 µs",
        "340 ns",
        "1 ps",
        "1 µs",
        "−3 ms",
    ]
    assert [human_count(n) for n in (12, 12_300, 4_000_000)] == ["12", "12.3 k", "4 M"]
    assert [human_shape(s) for s in ((), (2, 3))] == ["scalar", "2×3"]


def site(**changes) -> Site:
    given = {
        "id": "saved:a",
        "lever": "saved",
        "label": "a",
        "options": ("save", "recompute"),
        "choice": "save",
        "default": "save",
    }
    return Site(**{**given, **changes})


def test_a_click_goes_to_the_next_legal_option_in_a_cycle():
    assert next_option(site()) == "recompute"
    assert next_option(site(choice="recompute")) == "save"
    assert next_option(site(illegal={"recompute": "random"})) is None
    assert (
        next_option(site(options=("auto", "save", "recompute"), choice="auto", illegal={"save": "no"})) == "recompute"
    )


def test_short_names_omit_common_prefixes_and_suffixes():
    assert [short_name(n) for n in ("torch.tanh", "torch_prims_reshape_impl", "nvFusion3")] == [
        "tanh",
        "reshape",
        "nvFusion3",
    ]


def test_arguments_are_named_by_the_path_of_their_module():
    scopes = ["layers.0.mlp.up", "layers.0.mlp", "head"]
    names = {
        "t_layers_0_mlp_up_weight": "layers.0.mlp.up.weight",
        "g_import_main_net_modules_layers_modules_0_modules_mlp_modules_up_parameters_bias_": "layers.0.mlp.up.bias",
        "L_self_modules_head_parameters_weight_": "head.weight",
        "g_import_main_m_modules_ls_modules_0_parameters_in_proj_weight_": "ls.0.in_proj_weight",
        "g_import_main_m_parameters_scale_": "scale",
        "L_self_modules_up_proj_buffers_buf_a_": "up_proj.buf_a",
        "t_layers_0_mlp_gate_weight": "t_layers_0_mlp_gate_weight",  # of mlp.gate, which is not called
        "t_other_head_weight": "t_other_head_weight",
        "t_emb": "t_emb",  # an input
        "head_weight": "head_weight",  # an input, not a parameter
    }
    assert {name: argument_path(name, scopes) for name in names} == names


def test_settings_and_sites_are_listed_separately():
    both = (site(), site(id="saved.inputs", illegal={"recompute": "no fusions"}))
    assert [row["id"] for row in site_rows(both)] == ["saved:a"]
    assert setting_rows(both)[0]["options"][1] == {"name": "recompute", "reason": "no fusions"}


def test_trace_lines_have_their_source_and_their_node():
    graph, _ = llama(1)
    lines = trace_lines("import torch\n  t1 = torch.embedding(tokens)", graph, {"t1": "t:t1"})
    assert lines[0] == {"text": "import torch", "source": "", "id": ""}
    assert lines[1]["source"] == "llama.py:71  x = self.embedding(tokens)"
    assert lines[1]["id"] == "t:t1"


def test_the_accuracy_figure_shows_whether_results_are_bitwise_equal_and_the_tolerance():
    fused = TensorError(
        name="output", against=THUNDER, dtype="float32", max_abs_error=1e-6, max_rel_error=1e-6, tolerance=1e-4,
        ok=True, bitwise=False,
    )  # fmt: skip
    told = {"ok": True, "max_error": 1e-6, "against": THUNDER, "tensors": (fused,)}
    same = Accuracy(**told, bitwise=True, changed_kernels=())
    other = Accuracy(**told, bitwise=False, changed_kernels=("TorchCompile0",))
    moved = Accuracy(**told, bitwise=False, changed_kernels=())
    unknown = Accuracy(**told)
    each = (same, other, moved, unknown)
    shown = [figure_strip._accuracy(SimpleNamespace(accuracy=one), "measured")[2:] for one in each]
    assert shown == [
        [{"text": "bitwise", "kind": "as Thunder's", "tip": "every bit equals unmodified Thunder's result"}],
        [{"text": "within 1e-04", "kind": "1 kernel differs", "tip": other.words}],
        [{"text": "within 1e-04", "kind": "same kernels, some bits differ", "tip": moved.words}],
        [],
    ]
    assert other.words.startswith(
        "1 kernel differs from those of unmodified Thunder (TorchCompile0), so errors up to 0.0001"
    )
