"""The traits of a proxy are computed once. If a pass of Thunder changes the proxy, they are computed again."""

from __future__ import annotations

from typing import Any

from thunder.core import devices, dtypes

from workbench.compiler.interop.thunder_api import NumberProxy, TensorProxy, TraceCtx, tracectx
from workbench.compiler.trace.proxy_traits import Traits, bytes_of, shape_of, traits_of


def tensor() -> Any:
    with tracectx(TraceCtx(None)):
        return TensorProxy("t", shape=(2, 3), device=devices.to_device("cpu"), dtype=dtypes.bfloat16)


def test_traits_are_computed_once() -> None:
    proxy = tensor()
    assert traits_of(proxy) == Traits((2, 3), 12, "bfloat16", "cpu")
    assert traits_of(proxy) is traits_of(proxy)


def test_traits_follow_changes_of_a_proxy() -> None:
    proxy = tensor()
    traits_of(proxy)
    proxy._device = devices.to_device("cuda:0")
    assert traits_of(proxy).device == "cuda:0"
    proxy._shape = (4,)
    assert (shape_of(proxy), bytes_of(proxy)) == ((4,), 8)
    proxy._dtype = dtypes.float32
    assert (traits_of(proxy).dtype, bytes_of(proxy)) == ("float32", 16)


def test_a_number_has_no_shape_and_no_bytes() -> None:
    with tracectx(TraceCtx(None)):
        number = NumberProxy("n", 1.0, python_type=float)
    assert (shape_of(number), bytes_of(number)) == ((), 0)
