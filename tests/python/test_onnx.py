"""The published node cases of ONNX's operators Attention, RotaryEmbedding, LinearAttention and CausalConvWithState,
through onnx_adapter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")

import onnx_adapter  # noqa: E402

# Cases that are left out, by name, with the reason: none.
REFUSED: dict[str, str] = {}


def _cases(operator: str) -> list[Any]:
    """onnx makes the cases when their module is imported. (collect_testcases would import those of all operators.)"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node
        from onnx.backend.test.case.node import (  # noqa: F401
            attention,
            causal_conv_with_state,
            linear_attention,
            rotaryembedding,
        )
    found = [case for case in node._NodeTestCases if case.model.graph.node[0].op_type == operator]
    return [case for case in found if "_expanded" not in case.name and len(case.model.graph.node) == 1]


CASES = _cases("Attention")
ROTARY = _cases("RotaryEmbedding")
LINEAR = _cases("LinearAttention")
CONV = _cases("CausalConvWithState")


def test_cases_of_both_opsets_are_there() -> None:
    opsets = [case.model.opset_import[0].version for case in CASES]
    assert opsets.count(23) >= 60 and opsets.count(24) >= 10
    assert set(REFUSED) <= {case.name for case in CASES}


def _array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node_case(case: Any) -> None:
    if case.name in REFUSED:
        pytest.skip(REFUSED[case.name])
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        given = iter(inputs)
        arguments = [_array(next(given)) if name else None for name in node.input]
        names = list(node.output)
        results = onnx_adapter.attention(*arguments, **attributes, wanted=len(names))
        got = [result for result, name in zip(results, names) if name]
        assert len(got) == len(outputs)
        for result, wanted in zip(got, map(_array, outputs)):
            assert result.shape == wanted.shape and result.dtype == wanted.dtype
            # bf16 has 8 bits, and the reference rounds its scores and weights to them as well as its results.
            rtol = 2**-6 if wanted.dtype.name == "bfloat16" else max(case.rtol, 2**-10 if wanted.dtype == np.float16 else 0)
            atol = max(case.atol, float(np.finfo(np.float16).eps) if wanted.dtype == np.float16 else 1e-6)
            doubles = (np.asarray(x, np.float64) for x in (result, wanted))
            np.testing.assert_allclose(*doubles, rtol=rtol, atol=atol)


def test_all_cases_of_rotary_embedding_are_there() -> None:
    assert len(ROTARY) >= 8


@pytest.mark.parametrize("case", ROTARY, ids=lambda case: case.name)
def test_rotary_embedding(case: Any) -> None:
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        given = iter(inputs)
        arguments = [_array(next(given)) if name else None for name in node.input]
        (wanted,) = map(_array, outputs)
        got = onnx_adapter.rotary_embedding(*arguments, **attributes)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=case.rtol, atol=case.atol)


def test_all_cases_of_linear_attention_are_there() -> None:
    assert len(LINEAR) >= 14 and {case.model.opset_import[0].version for case in LINEAR} == {27}


def test_all_cases_of_causal_conv_are_there() -> None:
    assert len(CONV) >= 7 and {case.model.opset_import[0].version for case in CONV} == {27}


@pytest.mark.parametrize("case", LINEAR + CONV, ids=lambda case: case.name)
def test_cases_with_a_state(case: Any) -> None:
    node = case.model.graph.node[0]
    run = onnx_adapter.linear_attention if case in LINEAR else onnx_adapter.causal_conv
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for inputs, outputs in case.data_sets:
        given = iter(inputs)
        arguments = [_array(next(given)) if name else None for name in node.input]
        for got, wanted in zip(run(*arguments, **attributes), map(_array, outputs)):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            # Both round f32 to 16 bits once, and may fall on either side.
            half = wanted.dtype == np.float16
            limits = (2**-10, 2**-14) if half else (case.rtol, max(case.atol, 1e-6))
            np.testing.assert_allclose(*(np.asarray(x, np.float64) for x in (got, wanted)), *limits)
