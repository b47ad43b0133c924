"""Choices for Thunder: LlamaForCausalLM, device cpu, executor torch.

A script can apply these choices without the app:

    import workbench as wb

    config = wb.load('choices_in_trainer.py')
    fast = config.jit(model)  # thunder.jit with exactly these choices

`wb.load` never executes this file. The arguments of `wb.Config` may only be literals. A choice is a site
and its option; a site that is not named stays as in unmodified Thunder.
"""

import workbench as wb

config = wb.Config(
    format_version=1,
    program="LlamaForCausalLM",
    settings={},
    device="cpu",
    executor="torch",
    ranks=1,
    capture="dynamo",
    choices={
        # loss_utils.py:66 shift_labels = labels[..., 1:].contiguous()
        "saved:LlamaForCausalLM/contiguous": "recompute",
        # loss_utils.py:42 loss = nn.functional.cross_entropy(source, target, ignore_index=ignore_index, …
        "saved:LlamaForCausalLM/cross_entropy>log_softmax": "recompute",
        # loss_utils.py:42 loss = nn.functional.cross_entropy(source, target, ignore_index=ignore_index, …
        "saved:LlamaForCausalLM/cross_entropy>sum.1": "recompute",
        # modeling_llama.py:370 inputs_embeds: torch.Tensor = self.embed_tokens(input_ids)
        "saved:model.embed_tokens/embedding": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.0.input_layernorm/mul": "recompute",
        # modeling_llama.py:66 return self.weight * hidden_states.to(input_dtype)
        "saved:model.layers.0.input_layernorm/mul.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.0.input_layernorm/rsqrt": "recompute",
        # activations.py:103 return nn.functional.silu(input)
        "saved:model.layers.0.mlp.act_fn/silu": "recompute",
        # modeling_llama.py:164 down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        "saved:model.layers.0.mlp/mul": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.0.post_attention_layernorm/mul": "recompute",
        # modeling_llama.py:66 return self.weight * hidden_states.to(input_dtype)
        "saved:model.layers.0.post_attention_layernorm/mul.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.0.post_attention_layernorm/rsqrt": "recompute",
        # sdpa_attention.py:206 attn_output = attn_output.transpose(1, 2).contiguous()
        "saved:model.layers.0.self_attn/contiguous": "recompute",
        # sdpa_attention.py:193 attn_output = torch.nn.functional.scaled_dot_product_attention(
        "saved:model.layers.0.self_attn/logical_not>bitwise_not": "recompute",
        # sdpa_attention.py:193 attn_output = torch.nn.functional.scaled_dot_product_attention(
        "saved:model.layers.0.self_attn/logical_or": "recompute",
        # modeling_llama.py:306 hidden_states = residual + hidden_states
        "saved:model.layers.0/add": "recompute",
        # modeling_llama.py:312 hidden_states = residual + hidden_states
        "saved:model.layers.0/add.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.1.input_layernorm/mul": "recompute",
        # modeling_llama.py:66 return self.weight * hidden_states.to(input_dtype)
        "saved:model.layers.1.input_layernorm/mul.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.1.input_layernorm/rsqrt": "recompute",
        # activations.py:103 return nn.functional.silu(input)
        "saved:model.layers.1.mlp.act_fn/silu": "recompute",
        # modeling_llama.py:164 down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        "saved:model.layers.1.mlp/mul": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.1.post_attention_layernorm/mul": "recompute",
        # modeling_llama.py:66 return self.weight * hidden_states.to(input_dtype)
        "saved:model.layers.1.post_attention_layernorm/mul.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.layers.1.post_attention_layernorm/rsqrt": "recompute",
        # sdpa_attention.py:206 attn_output = attn_output.transpose(1, 2).contiguous()
        "saved:model.layers.1.self_attn/contiguous": "recompute",
        # sdpa_attention.py:193 attn_output = torch.nn.functional.scaled_dot_product_attention(
        "saved:model.layers.1.self_attn/logical_not>bitwise_not": "recompute",
        # sdpa_attention.py:193 attn_output = torch.nn.functional.scaled_dot_product_attention(
        "saved:model.layers.1.self_attn/logical_or": "recompute",
        # modeling_llama.py:306 hidden_states = residual + hidden_states
        "saved:model.layers.1/add": "recompute",
        # modeling_llama.py:312 hidden_states = residual + hidden_states
        "saved:model.layers.1/add.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.norm/mul": "recompute",
        # modeling_llama.py:66 return self.weight * hidden_states.to(input_dtype)
        "saved:model.norm/mul.1": "recompute",
        # modeling_llama.py:65 hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        "saved:model.norm/rsqrt": "recompute",
        # modeling_llama.py:113 cos = emb.cos() * self.attention_scaling
        "saved:model.rotary_emb/mul.1": "recompute",
        # modeling_llama.py:114 sin = emb.sin() * self.attention_scaling
        "saved:model.rotary_emb/mul.2": "recompute",
    },
    fingerprint="192e32b69681c389",
    versions={
        "lightning-thunder": "0.2.7.dev20260201",
        "nvfuser-cu128-torch210": "0.2.36.dev20260301",
        "thunder-workbench": "0.1.0",
        "torch": "2.10.0",
    },
)
