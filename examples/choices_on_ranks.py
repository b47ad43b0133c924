"""Choices for Thunder: LanguageModel, device cpu, executor torch.

A script can apply these choices without the app:

    import workbench as wb

    config = wb.load('choices_on_ranks.py')
    fast = config.jit(model)  # thunder.jit with exactly these choices

Ranks share the program: run the script under torchrun, and call
`torch.distributed.init_process_group` before `config.jit`.

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
    ranks=2,
    parallel="fsdp",
    choices={
        # issue of collectives whose results are only returned: last, or as soon as their inputs exist
        "waits.gradients": "earliest",
        # issue of collectives whose results are read
        "waits.issue": "consumer",
        # position of waits: right before the first use (late), or right after the issue (early)
        "waits.wait": "late",
    },
    fingerprint="bd58e7bfcec3f1f0",
    versions={
        "lightning-thunder": "0.2.7.dev20260201",
        "nvfuser-cu128-torch210": "0.2.36.dev20260301",
        "thunder-workbench": "0.1.0",
        "torch": "2.10.0",
    },
)
