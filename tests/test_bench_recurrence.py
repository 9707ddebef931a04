"""The measurements of the chunked form compare forms that compute the same."""

import pytest
import torch
from torch.testing import assert_close

from geolib.lab.benches import recurrence as bench


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("attention", "chunked"),
        ("gated attention", "gated chunked"),
        ("gated attention", "chunk by chunk"),
        ("gated attention", "large products"),
    ],
)
def test_compared_forms_have_equal_outputs_and_gradients(one, other):
    grads, outputs = [], []
    for form in (one, other):
        tensors = bench.inputs(heads=2, tokens=40, dim=4)
        outputs.append(bench.FORMS[form](*tensors))
        bench.forward_backward(form, tensors)
        grads.append([t.grad for t in tensors[:3]])
    assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)
    for a, b in zip(*grads):
        assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_a_run_has_times_memory_and_ratios(monkeypatch):
    monkeypatch.setattr(bench, "memory", lambda form, heads, tokens, dim: 1.0)
    rows = bench.run(heads=1, dim=4, compared=(32,), growth=(32, 64), quadratic=(32,), repeats=1)
    assert {"gated attention", "chunked", "scaled_dot_product_attention"} <= {row.get("form") for row in rows}
    assert all(row["seconds"] > 0 for row in rows if "seconds" in row)
    assert "chunk by chunk at 32 / large products at 32" in [row.get("ratio") for row in rows]
    assert "chunked at 64 / chunked at 32" in [row.get("ratio") for row in rows]
    assert all(row["device"] for row in rows)
    assert all(row["threads"] == torch.get_num_threads() for row in rows)
