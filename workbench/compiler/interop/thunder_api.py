"""The only access to Thunder: all names of Thunder that the workbench uses, looked up and checked at first use.

``from workbench.compiler.interop.thunder_api import TraceCtx`` imports Thunder's `TraceCtx`. If the installed Thunder
lacks a name or attribute, the first use raises `SeamError`. The message contains the installed and the wanted version.
`SEAM.examine()` and ``python -m workbench.compiler.interop.check_versions`` list all missing names at once; see
docs/upgrading.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

from workbench.compiler.interop.removed_methods import importable_thunder
from workbench.interop.private_api import PrivateApi

ELEMENTWISE = (
    "ABS",
    "ACOS",
    "ACOSH",
    "ASIN",
    "ASINH",
    "ATAN",
    "ATANH",
    "BITWISE_NOT",
    "CEIL",
    "COS",
    "COSH",
    "DIGAMMA",
    "ERF",
    "ERFC",
    "ERFCINV",
    "ERFINV",
    "EXP",
    "EXP2",
    "EXPM1",
    "FLOOR",
    "FREXP",
    "ISFINITE",
    "LGAMMA",
    "LOG",
    "LOG10",
    "LOG1P",
    "LOG2",
    "NDTRI",
    "NEG",
    "RECIPROCAL",
    "ROUND",
    "RSQRT",
    "SIGN",
    "SIGNBIT",
    "SIN",
    "SINH",
    "SQRT",
    "TAN",
    "TANH",
    "TRUNC",
    "REAL",
    "IMAG",
    "ADD",
    "ATAN2",
    "BITWISE_AND",
    "BITWISE_OR",
    "BITWISE_XOR",
    "DIV",
    "EQ",
    "PY_FLOORDIV",
    "FMOD",
    "GE",
    "GT",
    "LE",
    "LT",
    "MAXIMUM",
    "MINIMUM",
    "MUL",
    "NE",
    "NEXTAFTER",
    "POW",
    "REMAINDER",
    "SUB",
    "ZETA",
    "BITWISE_LEFT_SHIFT",
    "BITWISE_RIGHT_SHIFT",
    "LERP",
    "WHERE",
    "CONVERT_ELEMENT_TYPE",
    "SHALLOW_COPY",
)
"""Primitives that process each element separately."""

WAITS = ("wait", "torch_wait_prim_impl")
"""Names of symbols that wait for a collective: Thunder's primitive, and the operator of Thunder's PyTorch executor."""

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "broadcast",
    "reduce_scatter",
    "torch_all_gather_prim_impl",
    "torch_all_reduce_prim_impl",
    "torch_broadcast_prim_impl",
    "torch_reduce_scatter_prim_impl",
)
"""Names of symbols that issue a collective: Thunder's primitives, and the operators of Thunder's PyTorch executor."""

_NAMES: Mapping[str, str] = {
    "BoundSymbol": "thunder.core.symbol:BoundSymbol",
    "BoundSymbolTag": "thunder.core.symbol:BoundSymbolTag",
    "CollectionProxy": "thunder.core.proxies:CollectionProxy",
    "DDPTransform": "thunder.distributed.transforms.ddp_v2:DDPTransform",
    "DTensorProxy": "thunder.torch.experimental.dtensor_proxy:DTensorProxy",
    "FSDPTransform": "thunder.distributed.transforms.fsdp_v2:FSDPTransform",
    "FusionExecutor": "thunder.extend:FusionExecutor",
    "FutureTensorProxy": "thunder.core.proxies:FutureTensorProxy",
    "ImplInfo": "thunder.extend:ImplInfo",
    "IntegerProxy": "thunder.core.proxies:IntegerProxy",
    "NumberProxy": "thunder.core.proxies:NumberProxy",
    "OperatorExecutor": "thunder.extend:OperatorExecutor",
    "PrimIDs": "thunder.core.prims:PrimIDs",
    "Proxy": "thunder.core.proxies:Proxy",
    "ProxyTag": "thunder.core.proxies:ProxyTag",
    "PseudoInst": "thunder.core.interpreter:PseudoInst",
    "Region": "thunder.executors.utils:Region",
    "SigInfo": "thunder.core.codeutils:SigInfo",
    "Symbol": "thunder.core.symbol:Symbol",
    "TagBase": "thunder.core.baseutils:TagBase",
    "TensorProxy": "thunder.core.proxies:TensorProxy",
    "ThunderFunction": "thunder.executors.torch_autograd:ThunderFunction",
    "ThunderOutputFunction": "thunder.executors.torch_autograd:ThunderOutputFunction",
    "TorchCompileExecutor": "thunder.executors.torch_compile:TorchCompileExecutor",
    "TraceCtx": "thunder.core.trace:TraceCtx",
    "TraceProvenance": "thunder.core.trace:TraceProvenance",
    "TraceResults": "thunder.core.trace:TraceResults",
    "TraceTag": "thunder.core.trace:TraceTag",
    "Transform": "thunder.core.transform_common:Transform",
    "TransformForColumnWiseParallel": "thunder.distributed.tensor_parallel.column_wise:TransformForColumnWiseParallel",
    "TransformForRowWiseParallel": "thunder.distributed.tensor_parallel.row_wise:TransformForRowWiseParallel",
    "Variable": "thunder.core.proxies:Variable",
    "_cache_info_ctx": "thunder:_cache_info_ctx",
    "_get_cache_info": "thunder:_get_cache_info",
    "_grad_fn_map": "thunder.core.transforms:_grad_fn_map",
    "_pad_prim_impl": "thunder.executors.torchex:_pad_prim_impl",
    "_zeros_transform": "thunder.executors.torchex:_zeros_transform",
    "_get_gradfn_and_executor": "thunder.core.transforms:_get_gradfn_and_executor",
    "_transform_for_operator_executor_execution": "thunder.executors.passes:_transform_for_operator_executor_execution",
    "_vjp_impl": "thunder.torch:_vjp_impl",
    "augmented_forward_impls": "thunder.core.transforms:augmented_forward_impls",
    "autodiff": "thunder.transforms.autodiff",
    "baseutils": "thunder.core.baseutils",
    "backward_impls": "thunder.core.transforms:backward_impls",
    "check_cotangents": "thunder.torch.experimental.dtensor_utils:check_dtensor_cotangent_metadata_in_backward",
    "clear_mutable_collection": "thunder.executors.passes:clear_mutable_collection",
    "comment_symbols": "thunder.executors.passes:comment_symbols",
    "CompileData": "thunder.common:CompileData",
    "CompileStats": "thunder.common:CompileStats",
    "compile_data": "thunder.core.compile_data",
    "connect_to_autograd": "thunder.executors.torch_autograd:connect_to_autograd",
    "data_dependent_partition": "thunder.executors.data_dependent_partition",
    "dce": "thunder.core.transform_common:dce",
    "del_last_used": "thunder.executors.passes:del_last_used",
    "dead_code": "thunder.core.transform_common",
    "devices": "thunder.core.devices",
    "distributed_prims": "thunder.distributed.prims",
    "distributed_utils": "thunder.distributed.utils",
    "dtypes": "thunder.core.dtypes",
    "from_trace": "thunder.core.trace:from_trace",
    "fuse_bound_symbols": "thunder.executors.data_dependent_partition:fuse_bound_symbols",
    "get_always_executors": "thunder.extend:get_always_executors",
    "get_compile_option": "thunder.core.compile_data:get_compile_option",
    "get_default_executors": "thunder:get_default_executors",
    "get_executor": "thunder.extend:get_executor",
    "get_interpreterruntimectx": "thunder.core.interpreter:get_interpreterruntimectx",
    "get_tracectx": "thunder.core.trace:get_tracectx",
    "has_tags": "thunder.core.symbol:has_tags",
    "grad_transform_on_trace": "thunder.transforms.autodiff:grad_transform_on_trace",
    "insert_alias_updates": "thunder.core.update_aliases:insert_alias_updates",
    "interpreter": "thunder.core.interpreter",
    "is_constant_for_vjp": "thunder.core.transforms:is_constant_for_vjp",
    "jit": "thunder:jit",
    "jit_ext": "thunder.core.jit_ext",
    "langctxs": "thunder.core.langctxs",
    "last_backward_traces": "thunder:last_backward_traces",
    "last_traces": "thunder:last_traces",
    "make_compiled": "thunder.executors.torch_compile:make_compiled",
    "opcode_handlers": "thunder.core.interpreter:_default_opcode_handler_map",
    "passes": "thunder.executors.passes",
    "prims": "thunder.core.prims",
    "proxies": "thunder.core.proxies",
    "pytree": "thunder.core.pytree",
    "replace_uniform": "thunder.core.rematerialization:replace_uniform",
    "sdpaex": "thunder.executors.sdpaex",
    "split_into_forward_and_backward": "thunder.transforms.autodiff:split_into_forward_and_backward",
    "to_torch_device": "thunder.core.devices:to_torch_device",
    "to_torch_dtype": "thunder.core.dtypes:to_torch_dtype",
    "region_utils": "thunder.executors.utils",
    "symbol": "thunder.core.symbol",
    "thunder": "thunder",
    "thunder_functions": "thunder.torch:_torch_to_thunder_function_map",
    "thunder_trace": "thunder:trace",
    "thunderfx": "thunder.dynamo:thunderfx",
    "torch_executor": "thunder.executors.torchex:ex",
    "tensorproxy": "thunder.core.proxies:tensorproxy",
    "tracectx": "thunder.core.trace:tracectx",
    "transform_to_torch_types": "thunder.common:transform_to_torch_types",
    "transforms": "thunder.core.transforms",
    "tree_flatten": "thunder.core.pytree:tree_flatten",
    "tree_flatten_with_dataclass": "thunder.core.pytree:tree_flatten_with_dataclass",
    "tree_map": "thunder.core.pytree:tree_map",
    "unvariableify": "thunder.core.proxies:unvariableify",
    "unwrap": "thunder.core.interpreter:unwrap",
    "update_aliases": "thunder.core.update_aliases",
    "unwrap_return_value": "thunder.core.transform_common:unwrap_return_value",
    "utils": "thunder.core.utils",
    "variableify": "thunder.core.proxies:variableify",
    "with_arguments": "thunder.core.transform_common:wrap_return_value_together_with_arguments",
}

_MEMBERS: Mapping[str, Sequence[str]] = {
    "_cache_info_ctx": ("reset", "set"),
    "BoundSymbol": (
        "_call_ctx",
        "args",
        "flat_args",
        "flat_outs",
        "flat_proxy_args",
        "flat_proxy_outs",
        "from_bsym",
        "from_bsym_swap_proxies",
        "gather_ctxs",
        "kwargs",
        "output",
        "python",
        "source_filename",
        "source_positions",
        "subsymbols",
        "sym",
        "tags",
    ),
    "BoundSymbolTag": ("BACKWARD", "RECOMPUTE_IN_BACKWARD"),
    "PrimIDs": (
        *ELEMENTWISE,
        "COPY_",
        "DEL",
        "GET_AND_UPDATE_RNG_STATE",
        "RETURN",
        "UNPACK_TRIVIAL",
    ),
    "ProxyTag": ("DETACHED_AUTOGRAD_GRAPH", "RECOMPUTE_IN_BACKWARD", "STATIC_MEMORY_LOCATION"),
    "Symbol": (
        "lookup_symbol",
        "_module",
        "bind",
        "executor",
        "id",
        "is_fusion",
        "is_prim",
        "meta",
        "name",
        "python_impl",
        "tags",
    ),
    "ThunderFunction": ("backward",),
    "ThunderOutputFunction": ("backward",),
    "TensorProxy": (
        "device",
        "dtype",
        "replace",
        "replace_name",
        "requires_grad",
        "shape",
    ),
    "TraceCtx": (
        "bound_symbols",
        "get_provenance",
        "make_name",
        "python",
        "python_callable",
        "set_current_source_location",
        "set_provenance",
        "tags",
    ),
    "TraceTag": ("AUGMENTED_FORWARD", "BACKWARD"),
    "augmented_forward_impls": ("get",),
    "clear_mutable_collection": ("bind",),
    "baseutils": (
        "check",
        "check_type",
    ),
    "proxies": ("_infer_tensor_properties",),
    "compile_data": (
        "_compile_data.get",
        "compile_data_and_stats",
        "get_compile_data",
        "using_symbolic_values",
    ),
    "devices": (
        "Device",
        "DeviceType",
        "cpu",
        "to_device",
    ),
    "passes": (
        "clear_mutable_collection.bind",
        "_transform_for_operator_executor_execution",
    ),
    "transforms": ("_get_gradfn_and_executor",),
    "distributed_prims": (
        "PrimIDs",
        "PrimIDs.SYNCHRONIZE_TENSOR_PARALLEL_INPUT",
        "PrimIDs.SYNCHRONIZE_TENSOR_PARALLEL_OUTPUT",
    ),
    "connect_to_autograd": ("__wrapped__.__code__", "__wrapped__.__globals__"),
    "distributed_utils": (
        "bsym_list_to_dag",
        "has_wait_prims",
        "sort_waits",
    ),
    "dead_code": (
        "NON_FUNCTIONAL_OPS",
        "_remove_noop_subsymbols",
        "cse_single_bsym",
        "dce_bsyms",
        "order_proxies",
        "remove_duplicate_number_proxies",
        "replace_redundant_inputs",
    ),
    "dtypes": (
        "bool8",
        "bfloat16",
        "float16",
        "float32",
        "float64",
        "is_boolean_dtype",
        "is_complex_dtype",
        "is_float_dtype",
        "is_inexact_dtype",
        "to_dtype",
        "to_strong_dtype",
        "uint8",
    ),
    "update_aliases": (
        "_can_be_reshaped",
        "_get_new_aliases",
        "_is_inplace_op",
        "_is_view_creation_op",
    ),
    "interpreter": (
        "extract_code",
        "Py_NULL",
        "dis.get_instructions",
        "get_interpreterruntimectx",
        "inspect.stack",
        "is_pycapsule",
        "unwrap",
        "wrap_const",
    ),
    "PseudoInst": ("BINARY_SUBSCR", "LOAD_ATTR"),
    "jit_ext": (
        "_maybe_update_proxy_name",
        "bind_inputs",
        "is_created_during_tracing",
        "process_recorded_modifications",
    ),
    "langctxs": ("Languages.TORCH", "langctx"),
    "thunder": (
        "thunder_general_jit",
        "torch._fake_type_to_thunder",
        "torch._get_fake_arg",
        "torch.opt_einsum.contract_path",
    ),
    "prims": (
        "OpTags.AUTO_REGISTERED",
        "OpTags.DONT_DCE",
        "OpTags.MATMUL_OP",
        "OpTags.RANDOM_OP",
        "OpTags.REDUCTION_OP",
        "OpTags.SHAPE_OP",
        "PrimIDs.ABS",
        "PrimIDs.ARGMIN",
        "PrimIDs.MUL",
        "PrimIDs.BROADCAST_IN_DIM",
        "PrimIDs.CLONE",
        "PrimIDs.COMMENT",
        "PrimIDs.CONVERT_ELEMENT_TYPE",
        "PrimIDs.COPY_",
        "PrimIDs.DEL",
        "PrimIDs.EMBEDDING",
        "PrimIDs.EMBEDDING_BACKWARD",
        "PrimIDs.GET_GRAD",
        "PrimIDs.PAD",
        "PrimIDs.PRINT",
        "PrimIDs.RESHAPE",
        "PrimIDs.RETURN",
        "PrimIDs.ROUND",
        "PrimIDs.SHALLOW_COPY",
        "PrimIDs.SIGN",
        "PrimIDs.SINK",
        "PrimIDs.SLICE",
        "PrimIDs.SQUEEZE",
        "PrimIDs.STRIDE_ORDER",
        "PrimIDs.TRANSPOSE",
        "PrimIDs.TRUNC",
        "PrimIDs.UNPACK_SEQUENCE",
        "PrimIDs.UNPACK_TRIVIAL",
        "PrimIDs.UNIFORM",
        "PrimIDs.UPDATE_ALIASES",
        "PrimIDs.WHERE",
        "argmin",
        "get_grad",
        "pad",
        "put_grad",
        "python_del",
        "python_return",
        "shallow_copy.bind",
        "unpack_sequence",
        "unpack_trivial",
        "update_aliases.bind",
    ),
    "pytree": (
        "OPTREE_NAMESPACE",
        "optree.tree_flatten",
        "tree_flatten",
        "tree_flatten_with_dataclass",
        "tree_unflatten",
    ),
    "region_utils": ("comment_symbols",),
    "sdpaex": (
        "SpdaBackend.FLASH_ATTENTION",
        "SpdaBackend.MEMORY_EFFICIENT",
    ),
    "symbol": (
        "Symbol",
        "gather_tags",
        "inspect.signature",
        "tree_flatten",
        "tree_flatten_with_dataclass",
    ),
    "thunder_functions": ("__getitem__", "get", "items"),
    "torch_executor": (
        "can_execute",
        "get_execution_transform",
        "implmap",
        "name",
        "opmap",
        "register_implementation",
        "register_operator",
    ),
    "utils": (
        "OrderedSet",
        "ProxyDict",
        "consumers",
        "producers",
        "producers_and_consumers",
        "safe_map_flat",
        "sequencify",
        "tree_flatten",
    ),
}


SEAM = PrivateApi(
    package="Thunder",
    distributions=("lightning-thunder",),
    wanted="0.2.7.dev20260201",
    names=_NAMES,
    members=_MEMBERS,
    importing=importable_thunder,
)


def code_within(function: Any, name: str) -> CodeType:
    """Return the code object of the inner function `name` that Thunder's function `function` defines.

    Raises
    ------
    SeamError
        If the function does not exist.
    """
    for constant in function.__code__.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == name:
            return constant
    raise SEAM.missing_name_error(f"{function.__module__}.{function.__qualname__}", f"a function {name} inside")


def file() -> str:
    """Return the path of Thunder's main module."""
    path: str = SEAM.get("jit").__code__.co_filename
    return path


def cell_of(function: Any, name: str) -> CellType:
    """Return the closure cell of the local variable `name` of `thunder.jit`.

    Parameters
    ----------
    function : callable
        Result of `thunder.jit`. The search follows the closures of this function and of Thunder's functions in them.
    name : str

    Raises
    ------
    SeamError
        If the variable does not exist.
    """
    here = os.path.dirname(file()) + os.sep
    ahead: list[Any] = [function]
    seen: set[Any] = set()
    while ahead:
        each = ahead.pop()
        if not isinstance(each, FunctionType) or each in seen:
            continue
        seen.add(each)
        if not each.__code__.co_filename.startswith(here):
            continue  # skip functions outside of Thunder, such as the user's
        for own, cell in zip(each.__code__.co_freevars, each.__closure__ or (), strict=True):
            if own == name:
                return cell
            ahead.append(cell.cell_contents)
    raise SEAM.missing_name_error("thunder.jit", f"a variable {name}")


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():
        # On import, Thunder warns that an optional executor, which the workbench does not use, is missing.
        warnings.filterwarnings("ignore", message="transformer_engine module not found")
        value = SEAM.get(name)
    globals()[name] = value
    return value
