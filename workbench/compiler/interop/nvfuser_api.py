"""The only access to nvFuser: names of Thunder's nvFuser executor, checked at first use as in `thunder_api`.

Before the first use of this module, call `workbench.compiler.interop.devices.nvfuser_module`. Thunder does not import
these names without a GPU. If no GPU is attached, `nvfuser_module` makes PyTorch report a GPU during the import.
"""

from __future__ import annotations

from typing import Any

from workbench.interop.private_api import PrivateApi

SEAM = PrivateApi(
    package="nvFuser, with Thunder's executor for it,",
    distributions=("nvfuser-cu128-torch210",),
    wanted="0.2.36.dev20260301",
    names={
        "nvfuserex": "thunder.executors.nvfuserex",
        "nvfuserex_impl": "thunder.executors.nvfuserex_impl",
    },
    members={
        "nvfuserex": ("nvfuser_version",),
        "nvfuserex_impl": (
            "_translation_map",
            "all_tagged",
            "compute_contiguity",
            "create_fd",
            "ex",
            "getnv",
            "nvFuserExecutor._dce_bsyms",
            "nvFuserExecutor.can_fuse",
            "nvFuserExecutor.cse",
            "nvFuserExecutor.flatten",
            "nvFuserExecutor.fuse",
            "nvFuserExecutor.fusion_pass",
            "nvFuserExecutor.get_fuel",
            "nvFuserExecutor.has_cuda_input_or_output",
            "nvfuser_version",
            "remove_redundant_casts",
        ),
    },
)


def __getattr__(name: str) -> Any:
    return SEAM.get(name)
