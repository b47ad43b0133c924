"""Table of PyTorch's private names that the workbench uses. A name is checked at its first use; see `PrivateApi`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.interop.private_api import PrivateApi

if TYPE_CHECKING:
    # A type checker knows only these types, and treats all other names as Any.
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

SEAM = PrivateApi(
    package="PyTorch",
    distributions=("torch",),
    wanted="2.10.0",
    names={
        "AttributeMutationExisting": "torch._dynamo.variables.base:AttributeMutationExisting",
        "BackendCompilerFailed": "torch._dynamo.exc:BackendCompilerFailed",
        "ConstantVariable": "torch._dynamo.variables.constant:ConstantVariable",
        "DictGetItemSource": "torch._dynamo.source:DictGetItemSource",
        "FailOnRecompileLimitHit": "torch._dynamo.exc:FailOnRecompileLimitHit",
        "GlobalSource": "torch._dynamo.source:GlobalSource",
        "InstructionTranslatorBase": "torch._dynamo.symbolic_convert:InstructionTranslatorBase",
        "InstructionTranslator": "torch._dynamo.symbolic_convert:InstructionTranslator",
        "InliningInstructionTranslator": "torch._dynamo.symbolic_convert:InliningInstructionTranslator",
        "LazyVariableTracker": "torch._dynamo.variables.lazy:LazyVariableTracker",
        "CustomOpDef": "torch._library.custom_ops:CustomOpDef",
        "OPDEFS": "torch._library.custom_ops:OPDEFS",
        "OpOverload": "torch._ops:OpOverload",
        "OpOverloadPacket": "torch._ops:OpOverloadPacket",
        "SideEffects": "torch._dynamo.side_effects:SideEffects",
        "TensorVariable": "torch._dynamo.variables.tensor:TensorVariable",
        "TorchDynamoException": "torch._dynamo.exc:TorchDynamoException",
        "TorchInGraphFunctionVariable": "torch._dynamo.variables.torch:TorchInGraphFunctionVariable",
        "TupleVariable": "torch._dynamo.variables.lists:TupleVariable",
        "UnspecializedNNModuleVariable": "torch._dynamo.variables.nn_module:UnspecializedNNModuleVariable",
        "ValueMutationExisting": "torch._dynamo.variables.base:ValueMutationExisting",
        "VariableBuilder": "torch._dynamo.variables.builder:VariableBuilder",
        "VariableTracker": "torch._dynamo.variables.base:VariableTracker",
        "FakeStore": "torch.testing._internal.distributed.fake_pg:FakeStore",
        "FakeTensor": "torch._subclasses.fake_tensor:FakeTensor",
        "FakeTensorMode": "torch._subclasses.fake_tensor:FakeTensorMode",
        "TorchDispatchMode": "torch.utils._python_dispatch:TorchDispatchMode",
        "SAC_IGNORED_OPS": "torch.utils.checkpoint:SAC_IGNORED_OPS",
        "_CachingTorchDispatchMode": "torch.utils.checkpoint:_CachingTorchDispatchMode",
        "_EventType": "torch._C._profiler:_EventType",
        "_C": "torch._C",
        "_TorchDispatchModeKey": "torch._C:_TorchDispatchModeKey",
        "_disable_current_modes": "torch.utils._python_dispatch:_disable_current_modes",
        "_get_dispatch_mode": "torch._C:_get_dispatch_mode",
        "_autograd": "torch._C._autograd",
        "_functorch_depth": "torch._C._functorch:get_dynamic_layer_stack_depth",
        "_functorch_pop": "torch._C._functorch:pop_dynamic_layer_stack",
        "_len_torch_function_stack": "torch._C:_len_torch_function_stack",
        "_pop_mode_temporarily": "torch.overrides:_pop_mode_temporarily",
        "_nn_pad": "torch._C._nn:pad",
        "_log_api_usage_once": "torch._C:_log_api_usage_once",
        "_pytree": "torch.utils._pytree",
        "_record_memory_history": "torch.cuda.memory:_record_memory_history",
        "_grouped_mm": "torch:_grouped_mm",
        "_weight_norm": "torch:_weight_norm",
        "_attention_for_cpu": "torch:ops.aten._scaled_dot_product_flash_attention_for_cpu.default",
        "_attention_for_cpu_backward": "torch:ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        "_snapshot": "torch.cuda.memory:_snapshot",
        "dynamo_config": "torch._dynamo.config",
        "eval_frame": "torch._dynamo.eval_frame",
        "handle_traced_output": "torch._dynamo.variables.builder:handle_traced_output",
        "register_bytecode_hook": "torch._dynamo.convert_frame:register_bytecode_hook",
        "dynamo_utils": "torch._dynamo.utils",
        "no_dispatch": "torch.utils._mode_utils:no_dispatch",
        "numpy_operator_wrapper": "torch._dynamo.utils:numpy_operator_wrapper",
        "numpy_to_tensor_wrapper": "torch._dynamo.utils:numpy_to_tensor_wrapper",
        "split_module": "torch.fx.passes.split_module:split_module",
        "tree_iter": "torch.utils._pytree:tree_iter",
    },
    members={
        "CustomOpDef": ("register_autograd", "register_fake"),
        "InstructionTranslator": ("current_tx",),
        "InstructionTranslatorBase": ("maybe_has_backedge",),
        "InliningInstructionTranslator": ("get_globals_source_and_value",),
        "ConstantVariable": ("create",),
        "VariableTracker": (
            "build",
            "visit",
        ),
        "SideEffects": ("check_allowed_side_effect", "is_modified", "load_attr"),
        "TorchInGraphFunctionVariable": ("_get_handlers",),
        "UnspecializedNNModuleVariable": (
            "call_function",
            "get_nn_module_stack_source",
            "set_nn_module_stack_source",
            "var_getattr",
        ),
        "OPDEFS": ("get",),
        "_C": ("_ensureCUDADeviceGuardSet",),
        "_EventType": ("Allocation",),
        "_autograd": ("_saved_tensors_hooks_enable", "_saved_tensors_hooks_get_disabled_error_message"),
        "_TorchDispatchModeKey": ("FAKE",),
        "_pytree": ("keystr", "tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_map", "tree_unflatten"),
        "dynamo_config": (
            "accumulated_recompile_limit",
            "allow_rnn",
            "ignore_logger_methods",
            "patch",
            "recompile_limit",
            "run_gc_after_compile",
        ),
        "eval_frame": (
            "DynamoStance",
            "OptimizeContext",
            "_debug_get_cache_entry_list",
            "_set_stance",
            "_stance",
            "innermost_fn",
            "optimize",
            "reset_code",
        ),
        "dynamo_utils": (
            "_get_dynamo_config_for_logging",
            "compilation_time_metrics",
            "counters",
            "get_traced_code",
            "guard_failures",
        ),
    },
)


def __getattr__(name: str) -> Any:
    return SEAM.get(name)
