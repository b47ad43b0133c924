"""Build graphs without Thunder that resemble the graph of a Llama."""

from __future__ import annotations

import numpy as np

from workbench.core.graph import (
    BACKWARD,
    FORWARD,
    Graph,
    Kind,
    Origin,
    Ragged,
    StatementFlag,
    Statements,
    Storages,
    ValueFlag,
    Values,
)
from workbench.core.lever import Site


class Builder:
    """A builder to which tests add statements and values. `graph` returns them as a `Graph`."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self.rows: list[dict] = []
        self.values: list[dict] = []

    def origin(self, scope: str, symbol: str, line: int, text: str) -> int:
        number = sum(o.scope == scope and o.symbol == symbol for o in self.origins)
        self.origins.append(Origin(f"{scope}/{symbol}#{number}", scope, symbol, "llama.py", line, text))
        return len(self.origins) - 1

    def value(self, shape: tuple[int, ...], flags: int = 0, name: str = "") -> int:
        size = 4 * int(np.prod(shape))
        flags |= ValueFlag.TENSOR
        self.values.append({"name": name or f"t{len(self.values)}", "shape": shape, "bytes": size, "flags": flags})
        return len(self.values) - 1

    def add(
        self, name: str, side: int, origin: int, inputs, outputs, *, parent: int = -1, kind=Kind.OP, flags=0
    ) -> int:
        self.rows.append(
            {"name": name, "side": side, "origin": origin, "inputs": list(inputs), "outputs": list(outputs),
             "parent": parent, "kind": kind, "flags": flags}
        )  # fmt: skip
        return len(self.rows) - 1

    def graph(self) -> Graph:
        rows, values = self.rows, self.values
        producer = np.full(len(values), -1, np.int32)
        for index, row in enumerate(rows):
            for value in row["outputs"]:
                if producer[value] < 0:
                    producer[value] = index

        def column(key: str, dtype: type) -> np.ndarray:
            return np.asarray([row[key] for row in rows], dtype)

        return Graph(
            stage="execution",
            statements=Statements(
                name=tuple(row["name"] for row in rows),
                executor=tuple("torch" for _ in rows),
                kind=column("kind", np.int8),
                side=column("side", np.int8),
                parent=column("parent", np.int32),
                origin=column("origin", np.int32),
                flags=column("flags", np.int32),
                transient_bytes=np.zeros(len(rows), np.int64),
                flops=np.zeros(len(rows), np.int64),
                inputs=Ragged.of(row["inputs"] for row in rows),
                outputs=Ragged.of(row["outputs"] for row in rows),
                frees=Ragged.of([] for _ in rows),
            ),
            values=Values(
                name=tuple(v["name"] for v in values),
                shape=tuple(v["shape"] for v in values),
                dtype=tuple("float32" for _ in values),
                device=tuple("cpu" for _ in values),
                storage=np.arange(len(values), dtype=np.int32),
                producer=producer,
                bytes=np.asarray([v["bytes"] for v in values], np.int64),
                flags=np.asarray([v["flags"] for v in values], np.int32),
            ),
            storages=Storages(
                bytes=np.asarray([v["bytes"] for v in values], np.int64), root=np.arange(len(values), dtype=np.int32)
            ),
            origins=tuple(self.origins),
        )


_LINES = [
    ("attn_norm", "mul", 26, "n = torch.mean(x * x, dim=-1, keepdim=True)", (2, 128, 256)),
    ("attn_norm", "mean", 26, "n = torch.mean(x * x, dim=-1, keepdim=True)", (2, 128, 1)),
    ("attn_norm", "rsqrt", 27, "return x * torch.rsqrt(n + self.eps) * self.weight", (2, 128, 1)),
    ("attn_norm", "mul", 27, "return x * torch.rsqrt(n + self.eps) * self.weight", (2, 128, 256)),
    ("attn", "linear", 41, "q, k, v = self.qkv(x).chunk(3, dim=-1)", (2, 128, 768)),
    ("attn", "scaled_dot_product_attention", 47, "y = F.scaled_dot_product_attention(q, k, v)", (2, 8, 128, 32)),
    ("attn", "linear", 48, "return self.out(y.transpose(1, 2).reshape(b, t, c))", (2, 128, 256)),
    ("", "add", 62, "x = x + self.attn(self.attn_norm(x))", (2, 128, 256)),
    ("mlp", "linear", 55, "return self.down(F.silu(self.gate(x)) * self.up(x))", (2, 128, 688)),
    ("mlp", "silu", 55, "return self.down(F.silu(self.gate(x)) * self.up(x))", (2, 128, 688)),
    ("mlp", "linear", 55, "return self.down(F.silu(self.gate(x)) * self.up(x))", (2, 128, 256)),
    ("", "add", 63, "x = x + self.mlp(self.mlp_norm(x))", (2, 128, 256)),
]  # fmt: skip
_PRIMS = {"linear": ["linear"], "scaled_dot_product_attention": ["mul", "permute", "matmul", "softmax", "matmul"],
          "mean": ["sum", "true_divide"], "silu": ["sigmoid", "mul"]}  # fmt: skip


def llama(
    layers: int = 4, *, fused: bool = True, recompute: frozenset[str] = frozenset()
) -> tuple[Graph, tuple[Site, ...]]:
    """Return a graph and its sites: one `saved` site for each origin in a layer. `recompute` lists recomputed sites."""
    made = Builder()
    x = made.value((2, 128), ValueFlag.ARGUMENT, "tokens")
    made.add("unpack_trivial", FORWARD, -1, [], [x], kind=Kind.ARGUMENT)
    embedding = made.origin("embedding", "embedding", 71, "x = self.embedding(tokens)")
    x, previous = made.value((2, 128, 256)), x
    made.add("torch.embedding", FORWARD, embedding, [previous], [x])
    todo = []
    for layer in range(layers):
        fusion = -1
        for scope, symbol, line, text, shape in _LINES:
            place = f"layers.{layer}.{scope}".rstrip(".")
            origin = made.origin(place, symbol, line, text)
            fuse = fused and symbol not in ("linear", "scaled_dot_product_attention")
            if fuse and fusion < 0:
                fusion = made.add(f"nvFusion{layer}_{len(made.rows)}", FORWARD, -1, [], [], kind=Kind.FUSION)
            elif not fuse:
                fusion = -1
            for prim in _PRIMS.get(symbol, [symbol]):
                before, x = x, made.value(shape)
                made.add(f"torch.{prim}", FORWARD, origin, [before], [x], parent=fusion if fuse else -1)
                if fuse:
                    made.rows[fusion]["inputs"].append(before)
                    made.rows[fusion]["outputs"].append(x)
            todo.append((origin, symbol, x, shape, fuse))
    loss = made.origin("", "cross_entropy", 80, "return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())")
    before, x = x, made.value((1,), ValueFlag.OUTPUT)
    made.add("torch.cross_entropy", FORWARD, loss, [before], [x])
    made.add("python_return", FORWARD, -1, [x], [], kind=Kind.RETURN)
    grad = made.value((1,), ValueFlag.COTANGENT)
    made.add("unpack_trivial", BACKWARD, -1, [], [grad], kind=Kind.ARGUMENT)
    sites = []
    fusion = -1
    for origin, symbol, saved, shape, fuse in reversed(todo):
        source = made.origins[origin]
        id = f"saved:{source.id}"
        again = id in recompute
        sites.append(
            Site(
                id=id, lever="saved", label=f"{symbol} {made.values[saved]['name']}", options=("save", "recompute"),
                choice="recompute" if again else "save", default="save", outcome="recompute" if again else "save",
                source=f"{source.file}:{source.line} {source.text}", values=(made.values[saved]["name"],),
                bytes=made.values[saved]["bytes"],
            )
        )  # fmt: skip
        if not again:
            made.values[saved]["flags"] |= ValueFlag.SAVED
        if fuse and fusion < 0:
            fusion = made.add(f"nvFusion_b{len(made.rows)}", BACKWARD, -1, [], [], kind=Kind.FUSION)
        elif not fuse:
            fusion = -1
        operand = saved
        if again:
            operand = made.value(shape)
            made.add(f"torch.{symbol}", BACKWARD, origin, [], [operand], flags=StatementFlag.CLONE, parent=fusion)
        for prim in ["matmul", "reshape", "matmul"] if symbol == "linear" else ["mul", "sum"]:
            before, grad = grad, made.value(shape)
            made.add(f"torch.{prim}", BACKWARD, origin, [before, operand], [grad], parent=fusion if fuse else -1)
    made.add("python_return", BACKWARD, -1, [grad], [], kind=Kind.RETURN)
    return made.graph(), tuple(reversed(sites))
