"""Known reasons why a program cannot be traced, and a remedy for each reason."""

from __future__ import annotations

import re

from workbench.compiler.interop.thunder_patches import CHANGES_STATE

_STEPS = (
    r"Tensor\.backward\(\)|attribute backward|`Optimizer\.|torch\.autograd\.grad|torch/optim/optimizer\.py|"
    r"profiler\._record_function"
)
"""Pattern that matches the errors of a program that computes gradients or calls an optimizer's step."""

_OWN_STEPS = r"Tensor\.backward\(\)|attribute backward|`Optimizer\."
"""Pattern that matches the errors of a program that calls ``loss.backward()`` or an optimizer's step."""

RAISES = "the program raises an error of its own"
"""Beginning of the reason if the program itself raises an error while it is traced."""

FAILS = "fails on its inputs"
"""Part of the reason if PyTorch refuses an operator because of the shapes or types of the operator's inputs."""

MIXED_TYPES = "PyTorch cannot combine these data types either"
"""Part of the reason if an operator has tensors of different data types. Fake tensors accept some of them."""

UNREAD = "no incoming gradient is read by the backward of the torch.autograd.Function"
"""Reason for a `torch.autograd.Function` whose gradients do not depend on its incoming gradients."""

DECIDES = "a number in a tensor decides which code runs"
"""Reason for Python control flow that depends on a number in a tensor. Thunder does not know the number."""

DRAWS_AGAIN = "Thunder draws other numbers in the backward than in the forward"
"""Reason for a random operator that Thunder runs again for the operator's gradient."""

FLEXIBLE = "in flex_attention"
"""Part of the reason for an operator of PyTorch's `flex_attention`, including operators that make its default mask."""

ASSERTED = "asserted by the program"
"""Part of the reason for a check of values, either in the user's code or added by PyTorch."""

NUMBER_OF_TENSOR = "a number among its arguments is the value of a tensor"
"""Reason of an operator whose rule expects a number, such as a size or a width, and gets a tensor."""

_DIFFERENTIATES = (
    "the program takes a derivative: open the function that it differentiates (its backward is planned, too), or write "
    "out the derivative"
)

SETTING = "setting of PyTorch"
"""Part of the reason if an operator changes a setting of PyTorch, or runs under a changed setting."""

IN_PARTS = ", or open the program with capture='parts'"
"""End of a remedy. It is left out of the reason why a program is open in parts."""

_GUARDED = "GuardOnDataDependentSymNode|data-dependent expression"
"""Pattern of Dynamo's error if code depends on a number that it does not know, such as a size that values decide."""

_CAUSES = (
    (
        CHANGES_STATE,
        "Thunder's interpreter runs Python code only while it traces: open the program with capture='auto', or change "
        "the value outside of the program",
    ),
    (
        r"Expected a\.dtype=.*to be the same|Input type .*should be the same|was not an integer dtype|"
        r"must have the same dtype|to have one of the following scalar types",
        f"{MIXED_TYPES}: cast one of the tensors, as model.to(x.dtype) does, or open the program inside torch.autocast",
    ),
    (
        r"(must be Tensor|Expected a proper Tensor .*), not (tuple|list|dict)|got \((list|tuple|dict),",
        "give each input as an argument of its own, as open(program, x, y); a list, tuple or dict is one input",
    ),
    (
        RAISES,
        "call the program without the workbench, with the same inputs, to find the cause. If it runs there, it behaves "
        "differently under torch.compile, as some Hugging Face models do without attention_mask=",
    ),
    (
        r"ctc_loss|ata-dependent branching.*modeling_(wav2vec2|hubert|wavlm|unispeech|sew|data2vec_audio)\w*\.py",
        "a CTC loss reads the values of its labels: open the model without labels, and pass its logits to "
        "torch.nn.functional.ctc_loss outside of the program",
    ),
    (
        r"which changes a setting of PyTorch",
        "change the setting before the program, or open the program in parts: PyTorch then runs the code from this "
        "change to its end",
    ),
    (
        r"modules/adaptive\.py in forward",
        "the module selects rows by their values: compute the same loss by "
        "torch.nn.functional.nll_loss(module.log_prob(x), target)",
    ),
    (
        r"torch\.bincount",
        "the length of the result depends on values: count into a tensor of known length, as "
        "torch.zeros(n).scatter_add(0, x, torch.ones(x.shape)) does",
    ),
    (
        r"aten\.equal\.default",
        "the operator reads values: call torch.quantile(x, q), torch.cov(x) or torch.corrcoef(x), which can be traced, "
        "instead of tensor methods or torch.nanquantile",
    ),
    (
        r"FloatTrueDiv\(1\.0, ToFloat",
        "a batch norm with momentum=None reads the number of past batches: set a momentum, such as 0.1",
    ),
    (
        r"with max_norm writes",
        "scale the weight before the program, with torch.nn.utils.parametrize, or create the embedding without "
        "max_norm",
    ),
    (
        r"boolean advanced indexing|only specifying a condition|DynamicOutputShapeException|Dynamic shape operator|"
        r"data.dependent output",
        "the shape of the result depends on values: keep the shape, as torch.where(mask, x, 0) does, or select "
        "before the program",
    ),
    (
        r"builtin operator `min` with argument types \['generator'\]",
        "torch.distributions.kl_divergence searches for its formula in the first call of a process: call the program "
        "once before you open it",
    ),
    (
        # Since PyTorch 2.12, Dynamo traces the check of the mask, and stops where attention reads its result.
        rf"builtin operator `bool` with argument types \['Tensor'\]|({_GUARDED}).*torch/nn/modules/transformer\.py in ",
        "values decide which code runs: choose with torch.where, or pass the decision to the program as a bool. "
        "nn.Transformer, its encoder and its decoder read the values of a mask: also pass is_causal=, or "
        "src_is_causal= and tgt_is_causal=",
    ),
    (
        r"[Dd]ata-dependent branching|TensorProxy to a Python boolean",
        "values decide which code runs: choose with torch.where, or pass the decision to the program as a bool",
    ),
    (
        r"data-dependent expression.*torchvision/models/detection/",
        "a detection model chooses sizes and boxes by numbers that it reads from tensors: open model.backbone",
    ),
    (
        rf"{_GUARDED}|{DECIDES}",
        "a number that is read from a tensor decides which code runs: pass the number to the program",
    ),
    (
        r"torch\.\* op returned non-Tensor",
        "a function of PyTorch or NumPy returns a number here, not a tensor: compute numbers with math, or before the "
        "program",
    ),
    (
        r"unexpected keyword argument 'unbiased'",
        "Thunder's interpreter supports correction=, but not unbiased=: open the program with capture='auto', or write "
        "correction=0 instead of unbiased=False",
    ),
    (
        rf"_assert_async|cast_symbool_to_symint|(_assert_scalar|sym_ite).*{ASSERTED}",
        "an assertion depends on values: remove the assertion, or check the inputs before the call",
    ),
    (r"using `torch\.autograd\.grad`", _DIFFERENTIATES),
    (
        _STEPS,
        "open the part that returns the loss; its backward is planned with it, and the optimizer steps afterwards: "
        "loss = config.jit(model)(...); loss.backward(); optimizer.step(). Or open the whole step, with its optimizer",
    ),
    (
        r"tolist|\.numpy\b|from_numpy|as_tensor|\.item\(\)|\.item\b|_assert_scalar",
        "values move between tensors and Python here: compute with tensors only, or read the values before or after "
        "the program",
    ),
    (
        NUMBER_OF_TENSOR,
        "compute sizes in Python, from shapes and numbers: x.shape[-1] // 2 instead of a tensor's value",
    ),
    (
        r"builtin operator `(print|input|open)`",
        f"remove the call of print, input or open from the program{IN_PARTS}",
    ),
    (
        r"checkpoint_sequential",
        "call torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False) for each part of the sequence, "
        "instead of checkpoint_sequential",
    ),
    (
        r"use_reentrant=True",
        "checkpoint without reentrant autograd: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False); "
        "with Hugging Face model.gradient_checkpointing_enable({'use_reentrant': False})",
    ),
    (
        r"torch\.checkpoint: context_fn is not supported",
        "Thunder's interpreter does not support policies for what a checkpoint saves: open the program with "
        "capture='auto'",
    ),
    (
        r"context_fn of torch\.utils\.checkpoint raises",
        "correct the context_fn of the checkpoint, which eager PyTorch calls, too",
    ),
    (
        r"contexts that do not come from create_selective_checkpoint_contexts",
        "pass context_fn=functools.partial(create_selective_checkpoint_contexts, policy), or omit context_fn=",
    ),
    (
        r"multi_head_attention_forward",
        "write the attention with torch.nn.functional.scaled_dot_product_attention; or, for capture='dynamo', create "
        "nn.MultiheadAttention without add_bias_kv and add_zero_attn",
    ),
    (
        r"is being overwritten this is not allowed",
        "Thunder's interpreter cannot trace a torch.autograd.Function that writes in place: open the program with "
        "capture='auto', or write out of place",
    ),
    (
        r"Tensor\.requires_grad not supported",
        "a program cannot set requires_grad of a tensor: call requires_grad_() on the input before the program; for "
        "Hugging Face speech models, call model.freeze_feature_encoder()",
    ),
    (
        r"pack_padded_sequence|packed sequence|pad_packed_sequence|pack_sequence",
        "the shape of a packed sequence depends on its lengths, which are values: pass the padded batch to nn.LSTM, "
        "nn.GRU or nn.RNN, and mask the elements after each end",
    ),
    (
        r"leaf Variable that requires grad is being used in an in-place operation",
        "eager PyTorch refuses to write into a leaf that requires gradients: compute with a changed copy, w + 1 "
        "instead of w.add_(1), or write after the step, outside of the program",
    ),
    (
        r"through the written input",
        "write a detached value, as buffer.copy_(x.detach()), write under torch.no_grad(), or return a new tensor "
        "instead of writing into the input",
    ),
    (
        r"written in place under no_grad",
        "write after the step, outside of the program; or compute with a changed copy instead of changing the "
        "parameter: scale = self.scale.clamp(max=100) instead of self.scale.clamp_(max=100)",
    ),
    (
        r"PyTorch makes a view, so the write",
        "write by index, as x[:, 0] = x[:, 0] * 2 does, or write out of place",
    ),
    (
        r"running statistics are views",
        "store the mean and the variance in two separate tensors, instead of state[0] and state[1]",
    ),
    (
        r"Expected a\.numel=0 to be greater|ZeroDivisionError: integer modulo by zero",
        "Thunder's rule does not accept empty tensors: open the program with capture='auto', or avoid layers of width "
        "0 and empty batches",
    ),
    (
        r"_get_data_attr|Unknown attribute data\b",
        "autograd does not track x.data: read x.detach() instead; write into x.data only before the program or after "
        "the step",
    ),
    (
        r"backward of a torch\.autograd\.Function writes in place into memory that is used",
        "write after the backward, outside of the program, or return the values to write as a gradient of an input; "
        "with capture='parts', PyTorch runs the function",
    ),
    (
        r"AssertionError: assert isinstance\(fwd_out, variables\.BaseListVariable\)",
        "Dynamo fails at ctx.mark_non_differentiable of a result that is not in a tuple: return (y,) from the forward, "
        "and write (y,) = Function.apply(x); or omit the mark, and write Function.apply(x).detach()",
    ),
    (
        r"AttributeError: (mark_non_differentiable|mark_dirty|set_materialize_grads)",
        "Thunder's interpreter does not support this method of the context of a torch.autograd.Function: open the "
        "program with capture='auto'",
    ),
    (
        r"torch\.autograd\.Function writes in place",
        "return a new tensor from its forward, x * 2 instead of x.mul_(2) with mark_dirty",
    ),
    (
        UNREAD,
        "multiply the result of its backward by the incoming gradient, as grad * x does; the incoming gradient is 1 if "
        "the loss is the program's result. With capture='parts', PyTorch runs the function",
    ),
    (
        r"backwards hooks require compiled autograd",
        "remove the backward hooks from the modules (by remove() of the handle that register_full_backward_hook "
        "returned), or register them on tensors outside of the program",
    ),
    (
        r"lacks a conjugate",
        "compute with real and imaginary parts, as tensors of real numbers; with capture='parts', PyTorch runs the "
        "operator",
    ),
    (
        r"integrations/moe\.py.*data_ptr",
        "use these experts as plain operators: model.set_experts_implementation('batched_mm')",
    ),
    (
        r"Unsupported functorch tracing attempt",
        "a function that a config compiled is called inside torch.vmap or torch.func: pass the original module to them",
    ),
    (
        FLEXIBLE,
        "open the program with capture='auto', so that PyTorch runs this attention as a part. A plan replaces "
        "flex_attention by plain operators only if the program reads no result but the output, and if the score and "
        "mask functions compute each element separately, as score + (q - k) does",
    ),
    (
        r"_functorch\.predispatch",
        "write the batch as a dimension, instead of torch.vmap",
    ),
    (r"_C\._functorch|transform API|torch/_functorch/|torch/autograd/__init__\.py", _DIFFERENTIATES),
    (
        r"`manual_seed`|Generator\.(__new__|manual_seed)|generator is not None",
        "seed before the program and draw inside it without a generator, or pass the drawn numbers to the program",
    ),
    (
        DRAWS_AGAIN,
        "draw the numbers before, with torch.rand, and pass them to the operator; with capture='parts', PyTorch runs "
        "the operator",
    ),
    (
        r"drawn by Python's random or NumPy's",
        "draw with torch.rand, or pass the number to the program",
    ),
    (
        r"type <class 'torch\.SymInt'>",
        "the lengths of a nested tensor are values: pass the padded batch, and mask the elements after each end",
    ),
    (
        r"derivative for aten::\w+ is not implemented",
        "PyTorch has no gradient of this operator: detach its input, or write it with other operators",
    ),
    (
        r"wrap sparse Tensor|_sparse_mm\(\)",
        "sparse tensors cannot be traced: pass x.to_dense(), or compute the sparse product outside of the program",
    ),
    (
        r"torch\._dynamo\.utils\.(wrapped|numpy|to_numpy|from_numpy)",
        "NumPy is traced as tensors: compute numbers with math, and tensors with torch",
    ),
)


def fails(message: str) -> bool:
    """Return whether an operator fails in a program with this trace error, on fake tensors of the program's shapes."""
    # Dynamo names a size that depends on values `u0`.
    return FAILS in message and not re.search(r"\bu\d+\b", message)


def has_own_steps(message: str) -> bool:
    """Return whether a program with this trace error runs its own backward or an optimizer's step."""
    return re.search(_OWN_STEPS, message) is not None


_READS = (
    (r"^Data-dependent branching|^generic_jump", "a branch depends on values of tensors"),
    (r"^Unsupported Tensor\.item\(\)", "a value of a tensor is read as a Python number"),
    (r"^Data dependent operator", "an operator reads values of tensors in Python"),
    (r"^Dynamic shape operator", "the size of a result depends on values of tensors"),
)
"""Patterns of Dynamo's reasons for a graph break at which the program reads values of tensors; see `_BREAKS`."""

_PACKS = "the function `pack_(padded_)?sequence`"
"""Pattern of Dynamo's reason for a graph break at a function of PyTorch whose result has a size that values decide."""

_BREAKS = (
    *_READS,
    (r"graph_break\(\)", "the program asks for a graph break"),
    (r"^Unsupported Tensor\.(\w+)\(\) call", "Dynamo does not trace Tensor.{}"),
    (r"marked as skipped\b[^`]*`(?:<unknown module>\.)?([\w.]+?)\.?`", "Dynamo does not trace {}"),
)
"""Patterns of Dynamo's reasons for a graph break, each with the same reason in plain words.

``{}`` in the plain words stands for the name that the pattern captures.
"""


def break_words(reason: str) -> str:
    """Return Dynamo's reason for a graph break in plain words; empty if no pattern matches the reason."""
    found = ((re.search(pattern, reason), words) for pattern, words in _BREAKS)
    return next((words.format(*match.groups()) for match, words in found if match), "")


def reads_values(reason: str) -> bool:
    """Return whether Dynamo's reason for a graph break is that the program reads values of tensors.

    The last three patterns are about a size that depends on values, and that a later operator needs as a number.
    """
    patterns = (*(pattern for pattern, _ in _READS), _GUARDED, "^PendingUnbackedSymbolNotFound", _PACKS)
    return any(re.search(pattern, reason) for pattern in patterns)


def cause_of(message: str, intro: str) -> str:
    """Shorten the message of a refusal: remove Dynamo's own words if a remedy or a reason in plain words is known.

    The user's line, the plain reason and the remedy remain. If neither is known, the message does not change.

    Parameters
    ----------
    message : str
        Message of the refusal.
    intro : str
        Words in the message between the user's line and Dynamo's reason.
    """
    advice = remedy(message)
    if advice and advice in message:
        return message.partition(advice)[0].replace(intro, "") + advice
    where, found, reason = message.partition(intro)
    words = break_words(reason)
    return where + words if found and words else message


def remedy(message: str) -> str:
    """Return a remedy for a program that cannot be traced, given the tracer's message; empty if no remedy is known."""
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, message)), "")
