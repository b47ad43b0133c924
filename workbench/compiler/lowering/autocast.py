"""Autocast for operators that are in PyTorch's autocast lists, but have no autocast rule in Thunder."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy, compile_data, to_torch_dtype
from workbench.compiler.interop.torch_versions import WIDENS_RMS_NORM
from workbench.interop.torch_private import _nn_pad
from workbench.interop.torch_private import _pytree as pytree

NARROW = {
    "cpu": """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d linear matmul mm bmm prelu
        addmm addbmm baddbmm _addmm_activation linalg_vecdot scaled_dot_product_attention
    """,
    "cuda": """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution
        linear matmul mm mv bmm prelu addmm addmv addr addbmm baddbmm einsum chain_matmul linalg_multi_dot linalg_vecdot
        scaled_dot_product_attention
    """,
}
"""PyTorch's operators that autocast computes in the data type that the program chose, such as bfloat16."""

WIDE = {
    "cpu": """
        adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d max_pool3d max_unpool2d max_unpool3d fractional_max_pool2d
        fractional_max_pool3d grid_sampler grid_sampler_2d grid_sampler_3d reflection_pad1d reflection_pad2d
        replication_pad1d replication_pad2d replication_pad3d binary_cross_entropy binary_cross_entropy_with_logits
        cosine_embedding_loss cross_entropy_loss ctc_loss hinge_embedding_loss huber_loss kl_div l1_loss
        margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d poisson_nll_loss
        smooth_l1_loss soft_margin_loss triplet_margin_loss cdist prod quantile nanquantile trace polar stft
        view_as_complex fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn
        fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn cholesky cholesky_inverse cholesky_solve
        geqrf inverse linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals
        linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr
        linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve _lu_with_info orgqr ormqr
        pinverse qr svd triangular_solve
    """,
    "cuda": """
        acos asin cosh erfinv exp expm1 log log10 log1p log2 logsumexp pow reciprocal renorm rsqrt sinh softplus tan
        group_norm layer_norm native_layer_norm frobenius_norm nuclear_norm cosine_similarity cdist dist pdist
        binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss
        margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d poisson_nll_loss
        smooth_l1_loss soft_margin_loss triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d
        upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa
        _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d cumprod
        cumsum linalg_matrix_norm linalg_vector_norm log_softmax norm prod softmax sum
    """
    + "rms_norm" * WIDENS_RMS_NORM,
}
"""PyTorch's operators that autocast computes in float32. If a call gives a `dtype`, it is that of the result."""

PROMOTE = {
    "cpu": "cat stack index_copy",
    "cuda": "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot",
}
"""PyTorch's operators that autocast computes in the widest data type of their tensors."""

_OWNERS = {torch: "", torch.Tensor: "", functional: "", torch.linalg: "linalg_", torch.fft: "fft_"}
"""Modules with functions for operators, each with the prefix that its functions lack."""

_OTHER_NAMES: dict[str, tuple[Callable[..., Any], ...]] = {
    "cat": (torch.concat, torch.concatenate),
    "cross": (torch.linalg.cross,),
    "cross_entropy_loss": (functional.cross_entropy,),
    "grid_sampler": (functional.grid_sample,),
    "log_softmax": (torch.special.log_softmax,),
    "pow": (operator.pow, *(getattr(torch.Tensor, f"__{name}__") for name in ("pow", "rpow"))),
    "softmax": (functional.softmin, torch.special.softmax),
    **{f"{kind}_pool3d": (getattr(functional, f"{kind}_pool3d_with_indices"),) for kind in ("max", "adaptive_max")},
    **{
        f"{at}d": (getattr(functional, f"{at}d_with_indices"),)
        for at in ("fractional_max_pool2", "fractional_max_pool3")
    },
}


def functions(names: str) -> Iterator[Callable[..., Any]]:
    """Yield the functions and methods of PyTorch for operators, given by their names in PyTorch's lists."""
    for name in names.split():
        for owner, prefix in _OWNERS.items():
            found = getattr(owner, name.removeprefix(prefix), None) if name.startswith(prefix) else None
            if found is not None:
                yield found
        yield from _OTHER_NAMES.get(name, ())


_POLICIES = {
    device: {f: which for which, table in enumerate((NARROW, WIDE, PROMOTE)) for f in functions(table[device])}
    for device in NARROW
}
_COMPOSED = frozenset(
    (
        *functions(
            "inner tensordot einsum chain_matmul linalg_multi_dot linalg_matmul matrix_power linalg_matrix_power"
        ),
        *(
            functional.bilinear,
            functional.pad,
            _nn_pad,
            functional.interpolate,
            functional.normalize,
            functional.cross_entropy,
        ),
    )
)
"""Functions that PyTorch composes of other operators, which depend on the arguments.

The data type of PyTorch's result says whether autocast casts.
"""
_TYPED = frozenset(functions("cumprod cumsum linalg_matrix_norm linalg_vector_norm log_softmax norm softmax sum"))
"""Functions for which autocast casts nothing if a call gives a `dtype`."""
_HALVES = (torch.bfloat16, torch.float16)
_KNOWN = (*_HALVES, torch.float32)


_RECURRENT = frozenset(
    getattr(torch, f"{name}{ending}") for name in ("gru", "lstm", "rnn_relu", "rnn_tanh") for ending in ("", "_cell")
)


def cast(target: Callable[..., Any], args: Any, kwargs: Any, example: Any = None) -> tuple[Any, Any]:
    """Return the positional and keyword arguments of a call, with tensors cast as PyTorch's autocast casts them.

    Parameters
    ----------
    target : callable
        PyTorch's function.
    args, kwargs
        Arguments of the call. Tensors are Thunder's proxies.
    example : Tensor, optional
        Result of the call in PyTorch, such as a fake tensor.

    Raises
    ------
    NotImplementedError
        For a recurrent network, so that PyTorch runs it.
    """
    # Thunder has compile data only while it traces or compiles a program.
    data, _ = compile_data._compile_data.get()
    if data is None or data.autocast_stack.is_empty():
        return args, kwargs
    for device in NARROW:
        kind = data.autocast_stack.get_dtype_for_device_if_enabled(device)
        if kind is not None:
            if target in _RECURRENT and any(_is_cast(leaf, device) for leaf in pytree.tree_leaves((args, kwargs))):
                raise NotImplementedError("under autocast, each of PyTorch's kernels for it casts other tensors")
            args, kwargs = _cast_on(device, to_torch_dtype(kind), target, (args, kwargs), example)
    return args, kwargs


def _cast_on(device: str, kind: torch.dtype, target: Callable[..., Any], given: Any, example: Any) -> Any:
    leaves = pytree.tree_leaves(given)
    types = {to_torch_dtype(leaf.dtype) for leaf in leaves if _is_cast(leaf, device)}
    policy = _POLICIES[device].get(target)
    if policy is None and target in _COMPOSED and isinstance(example, torch.Tensor):
        policy = {kind: 0, torch.float32: 1}.get(example.dtype)
    typed = target in _TYPED and any(isinstance(leaf, torch.dtype) for leaf in leaves)
    if policy is None or not types or typed:
        return given
    wanted = kind if policy == 0 or (policy == 2 and torch.float32 not in types) else torch.float32
    return pytree.tree_map(lambda leaf: leaf.to(wanted) if _is_cast(leaf, device) else leaf, given)


def _is_cast(leaf: Any, device: str) -> bool:
    return isinstance(leaf, TensorProxy) and leaf.device.type == device and to_torch_dtype(leaf.dtype) in _KNOWN
