"""Known causes why a program cannot be traced, and a remedy for each."""

from __future__ import annotations

import re

_STEPS = (
    r"Tensor\.backward\(\)|attribute backward|`Optimizer\.|torch\.autograd\.grad|torch/optim/optimizer\.py|"
    r"profiler\._record_function"
)
"""Pattern for a program that calls its own backward, or an optimizer's step."""

RAISES = "the program raises an error of its own"
"""Beginning of the reason for a program that raises an error while it is traced."""

FAILS = "fails on what it is given"
"""Part of the reason for an operator that PyTorch refuses to compute, whatever the values."""

UNREAD = "nothing is read of the gradients that are given to the backward of the torch.autograd.Function"
"""Text of the reason for a `torch.autograd.Function` with gradients independent of its incoming gradients."""

DECIDES = "a number that is read from a tensor decides what is done"
"""Text of the reason for a decision on a number in a tensor, whose value Thunder would not know."""

DRAWS_AGAIN = "Thunder draws other numbers for its gradient than for itself"
"""Text of the reason for an operator with random numbers that Thunder reruns for its gradient."""

FLEXIBLE = "in flex_attention"
"""Text for PyTorch's `flex_attention`, and the mask that it makes if it gets none."""

ASSERTED = "asserted by the program"
"""Text for a check of values in the user's code, or for such a check that PyTorch adds."""

_CAUSES = (
    (
        r"Expected a\.dtype=.*to be the same|Input type .*should be the same|was not an integer dtype",
        "tensors of these types do not go together in PyTorch either: cast one of them, as model.to(x.dtype) does, or "
        "open it inside of torch.autocast",
    ),
    (
        RAISES,
        "call it without the workbench, with the same inputs, to see where it comes from; if it runs there, it does "
        "something else under torch.compile, as some models of Hugging Face do that are given no attention_mask=",
    ),
    (
        r"ctc_loss|ata-dependent branching.*modeling_(wav2vec2|hubert|wavlm|unispeech|sew|data2vec_audio)\w*\.py",
        "a CTC loss looks at the values of its labels: open the model without labels, and give its logits to "
        "torch.nn.functional.ctc_loss outside of the program",
    ),
    (
        r"modules/adaptive\.py in forward",
        "it chooses rows by their values: torch.nn.functional.nll_loss(module.log_prob(x), target) is the same loss",
    ),
    (
        r"torch\.bincount",
        "how many it gives depends on values: count into a length that is known, as "
        "torch.zeros(n).scatter_add(0, x, torch.ones(x.shape)) does",
    ),
    (
        r"aten\.equal\.default",
        "it looks at values: call torch.quantile(x, q), torch.cov(x) or torch.corrcoef(x), which are known, in place "
        "of the methods of a tensor or of torch.nanquantile",
    ),
    (
        r"FloatTrueDiv\(1\.0, ToFloat",
        "a batch norm with momentum=None reads how many batches there were: give it a momentum, such as 0.1",
    ),
    (
        r"with max_norm writes",
        "scale the weight before the program, by torch.nn.utils.parametrize, or make the embedding without max_norm",
    ),
    (
        r"boolean advanced indexing|only specifying a condition|DynamicOutputShapeException|Dynamic shape operator|"
        r"data.dependent output",
        "the shape of its result depends on values: keep the shape, as torch.where(mask, x, 0) does, or select "
        "before the program",
    ),
    (
        r"builtin operator `min` with argument types \['generator'\]",
        "torch.distributions.kl_divergence looks for its formula in the first call of a process: call the program once "
        "before it is opened",
    ),
    (
        r"builtin operator `bool` with argument types \['Tensor'\]",
        "what is done depends on values: choose with torch.where, or give the decision to the program as a bool. "
        "nn.Transformer and its encoder and decoder look at a mask unless they are told: give is_causal=, or "
        "src_is_causal= and tgt_is_causal=, beside it",
    ),
    (
        r"[Dd]ata-dependent branching|TensorProxy to a Python boolean",
        "what is done depends on values: choose with torch.where, or give the decision to the program as a bool",
    ),
    (
        r"data-dependent expression.*torchvision/models/detection/",
        "a model of detection chooses sizes and boxes by numbers that it reads from tensors: open model.backbone",
    ),
    (
        rf"GuardOnDataDependentSymNode|data-dependent expression|{DECIDES}",
        "what is done depends on a number that is read from a tensor: give the number to the program",
    ),
    (
        r"torch\.\* op returned non-Tensor",
        "a function of PyTorch or NumPy gives a number there, not a tensor: compute numbers with math, or before the "
        "program",
    ),
    (
        r"unexpected keyword argument 'unbiased'",
        "Thunder's own interpreter knows correction=, and not unbiased=: open it with capture='auto', or write "
        "correction=0 for unbiased=False",
    ),
    (
        rf"_assert_async|cast_symbool_to_symint|_assert_scalar.*{ASSERTED}",
        "what is asserted depends on values: take it out of the program, or check what is given before the call",
    ),
    (
        _STEPS,
        "open what gives the loss; its backward is made and planned with it, and the optimizer steps after it: "
        "loss = config.jit(model)(...); loss.backward(); optimizer.step(). Or open the whole step, with its optimizer",
    ),
    (
        r"tolist|\.numpy\b|from_numpy|as_tensor|\.item\(\)|\.item\b|_assert_scalar",
        "values leave the tensors there: stay in tensors, or do it before or after the program",
    ),
    (r"builtin operator `(print|input|open)`", "take it out of the program, or open it in parts: capture='parts'"),
    (
        r"checkpoint_sequential",
        "call torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False) for each part of the sequence, in place "
        "of checkpoint_sequential",
    ),
    (
        r"use_reentrant=True",
        "checkpoint without reentrant autograd: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False); "
        "with Hugging Face model.gradient_checkpointing_enable({'use_reentrant': False})",
    ),
    (
        r"torch\.checkpoint: context_fn is not supported",
        "Thunder's interpreter knows no policy of what a checkpoint saves: open it with capture='auto'",
    ),
    (
        r"other contexts than create_selective_checkpoint_contexts",
        "give context_fn=functools.partial(create_selective_checkpoint_contexts, policy), or leave it out",
    ),
    (
        r"multi_head_attention_forward",
        "write the attention with torch.nn.functional.scaled_dot_product_attention, or make nn.MultiheadAttention "
        "without add_bias_kv and add_zero_attn, for capture='dynamo'",
    ),
    (
        r"is being overwritten this is not allowed",
        "Thunder's interpreter cannot take a torch.autograd.Function that writes in place: open it with "
        "capture='auto', or write it out of place",
    ),
    (
        r"Tensor\.requires_grad not supported",
        "whether gradients are asked of a tensor is for its maker to say: call requires_grad_() on the input before "
        "the program; models of speech by Hugging Face do without after model.freeze_feature_encoder()",
    ),
    (
        r"pack_padded_sequence|packed sequence|pad_packed_sequence|pack_sequence",
        "the shape of a packed sequence depends on its lengths, which are values: give nn.LSTM, nn.GRU or nn.RNN the "
        "padded batch, and mask what is behind each end",
    ),
    (
        r"leaf Variable that requires grad is being used in an in-place operation",
        "eager PyTorch refuses to write a leaf that requires gradients: compute from a changed copy, as w + 1 in place "
        "of w.add_(1), or write it after the step, outside of the program",
    ),
    (
        r"written in place under no_grad",
        "write after the step, outside of the program; or compute from a changed copy, and leave the parameter as it "
        "is: scale = self.scale.clamp(max=100) in place of self.scale.clamp_(max=100)",
    ),
    (
        r"has a view of, and the write",
        "write it by index, as x[:, 0] = x[:, 0] * 2 does, or out of place",
    ),
    (
        r"running statistics that are views",
        "keep them in tensors of their own, one for the mean and one for the variance, in place of state[0] and "
        "state[1]",
    ),
    (
        r"Expected a\.numel=0 to be greater|ZeroDivisionError: integer modulo by zero",
        "Thunder's own rule takes nothing that is empty: open it with capture='auto', or leave out the layer of no "
        "width, or the batch of none",
    ),
    (
        r"_get_data_attr|Unknown attribute data\b",
        "x.data goes past what autograd keeps track of: read x.detach() in its place; where x.data is written, write "
        "before the program or after the step",
    ),
    (
        r"backward of a torch\.autograd\.Function writes in place what others see",
        "write after the backward, outside of the program, or give what is to be written as a gradient of an input; "
        "PyTorch runs it where the program comes in as parts",
    ),
    (
        r"AssertionError: assert isinstance\(fwd_out, variables\.BaseListVariable\)",
        "Dynamo takes ctx.mark_non_differentiable of a result that is not in a tuple for an error: have the forward "
        "return (y,), and write (y,) = Function.apply(x); or leave the mark out, and write Function.apply(x).detach()",
    ),
    (
        r"AttributeError: (mark_non_differentiable|mark_dirty|set_materialize_grads)",
        "Thunder's interpreter knows no such method of the context of a torch.autograd.Function: open it with "
        "capture='auto'",
    ),
    (
        r"torch\.autograd\.Function writes in place",
        "have its forward give what it computes, as x * 2 does, in place of x.mul_(2) with mark_dirty",
    ),
    (
        UNREAD,
        "have its backward give its result times the gradient that it is given, which is 1 where a loss is the last "
        "of a program, as grad * x does; PyTorch runs it where the program comes in as parts",
    ),
    (
        r"backwards hooks require compiled autograd",
        "take the backward hooks off the modules (the handle that register_full_backward_hook gave has remove()), or "
        "put them on tensors outside of the program",
    ),
    (
        r"lacks a conjugate",
        "compute with real and imaginary parts, as tensors of real numbers; PyTorch runs it where the program comes in "
        "as parts",
    ),
    (
        r"integrations/moe\.py.*data_ptr",
        "Hugging Face has these experts as plain operators, too: model.set_experts_implementation('batched_mm')",
    ),
    (
        r"Unsupported functorch tracing attempt",
        "what a config compiled is called inside of torch.vmap or torch.func: give these the module itself",
    ),
    (
        FLEXIBLE,
        "PyTorch runs this attention where the program comes in as parts: open it with capture='auto'. Where only its "
        "result is read, and its functions compute each element alone, as score + (q - k) does, it is written as the "
        "operators that it computes",
    ),
    (
        r"_functorch\.predispatch",
        "write the batch as a dimension, in place of torch.vmap",
    ),
    (
        r"_C\._functorch|transform API|torch/_functorch/|torch/autograd/__init__\.py",
        "a derivative is taken inside of the program: open what is differentiated, whose backward is made and planned "
        "with it, or write the derivative out",
    ),
    (
        r"`manual_seed`|Generator\.(__new__|manual_seed)|generator is not None",
        "seed before the program, and draw inside of it without a generator of its own, or give it what is drawn",
    ),
    (
        DRAWS_AGAIN,
        "give it numbers that are drawn before, by torch.rand; PyTorch runs it where the program comes in as parts",
    ),
    (
        r"drawn by Python's random or NumPy's",
        "draw with torch.rand, or give the number to the program",
    ),
    (
        r"type <class 'torch\.SymInt'>",
        "the lengths of a nested tensor are values: give the padded batch, and mask what is behind each end",
    ),
    (
        r"wrap sparse Tensor|_sparse_mm\(\)",
        "sparse tensors cannot be traced: give x.to_dense(), or take the sparse product outside of the program",
    ),
    (
        r"torch\._dynamo\.utils\.(wrapped|numpy|to_numpy|from_numpy)",
        "NumPy is traced as tensors: compute numbers with math, and tensors with torch",
    ),
)


_IN_PARTS = re.compile(
    r"with max_norm writes|statistics that are views|torch\.bincount|aten\.equal|"
    r"builtin operator `(print|bool|min)`|multi_head_attention_forward|integrations/moe\.py.*data_ptr|_get_data_attr|"
    r"`manual_seed`|Generator\.__new__|Unknown attribute data|lacks a conjugate|op returned non-Tensor|"
    rf"{DRAWS_AGAIN}|"
    rf"Function writes in place what (it is given|others see)|{UNREAD}"
)
"""Known causes after which a program is split, and captured in parts."""


def is_final(message: str, takes_steps: bool) -> bool:
    """Return whether a program with this trace error cannot be captured in parts either, so that it needs a change.

    Parameters
    ----------
    message : str
    takes_steps : bool
        Whether the program holds an optimizer, because a whole training step is captured in parts.
    """
    if takes_steps and re.search(_STEPS, message):
        return False
    return bool(remedy(message)) and not _IN_PARTS.search(message)


def remedy(message: str) -> str:
    """Return a remedy for a program that cannot be traced, given the tracer's message; empty if unknown."""
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, message)), "")
