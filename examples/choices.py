"""Choices for Thunder: LanguageModel, device cpu, executor torch.

A script can apply these choices without the app:

    import workbench as wb

    config = wb.load('choices.py')
    fast = config.jit(model)  # thunder.jit with exactly these choices

`wb.load` never executes this file. The arguments of `wb.Config` may only be literals. A choice is a site
and its option; a site that is not named stays as in unmodified Thunder.
"""

import workbench as wb

config = wb.Config(
    format_version=1,
    program="LanguageModel",
    settings={},
    device="cpu",
    executor="torch",
    ranks=1,
    capture="dynamo",
    choices={
        # model.py:41 return F.cross_entropy(self.head(x).view(-1, VOCABULARY), targets.view(-1))
        "saved:LanguageModel/cross_entropy>log_softmax": "recompute",
        # model.py:41 return F.cross_entropy(self.head(x).view(-1, VOCABULARY), targets.view(-1))
        "saved:LanguageModel/cross_entropy>sum.1": "recompute",
        # model.py:38 x = self.embedding(tokens)
        "saved:embedding/embedding": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.0.attention_norm/layer_norm>add.1": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.0.attention_norm/layer_norm>mul": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.0.attention_norm/layer_norm>rsqrt": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.0.attention_norm/layer_norm>sub": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.0.attention_norm/layer_norm>var_mean[1]": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.0.mlp_norm/layer_norm>add.1": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.0.mlp_norm/layer_norm>mul": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.0.mlp_norm/layer_norm>rsqrt": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.0.mlp_norm/layer_norm>sub": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.0.mlp_norm/layer_norm>var_mean[1]": "recompute",
        # model.py:22 x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        "saved:layers.0/add": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.0/add.1": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.0/mul": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.0/silu": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.1.attention_norm/layer_norm>add.1": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.1.attention_norm/layer_norm>mul": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.1.attention_norm/layer_norm>rsqrt": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.1.attention_norm/layer_norm>sub": "recompute",
        # model.py:21 q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        "saved:layers.1.attention_norm/layer_norm>var_mean[1]": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.1.mlp_norm/layer_norm>add.1": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.1.mlp_norm/layer_norm>mul": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.1.mlp_norm/layer_norm>rsqrt": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.1.mlp_norm/layer_norm>sub": "recompute",
        # model.py:23 normed = self.mlp_norm(x)
        "saved:layers.1.mlp_norm/layer_norm>var_mean[1]": "recompute",
        # model.py:22 x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        "saved:layers.1/add": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.1/add.1": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.1/mul": "recompute",
        # model.py:24 return x + self.down(F.silu(self.gate(normed)) * self.up(normed))
        "saved:layers.1/silu": "recompute",
    },
    fingerprint="bd58e7bfcec3f1f0",
    versions={
        "lightning-thunder": "0.2.7.dev20260201",
        "nvfuser-cu128-torch210": "0.2.36.dev20260301",
        "thunder-workbench": "0.1.0",
        "torch": "2.10.0",
    },
)
