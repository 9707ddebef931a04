"""Attention with an encoding goes through ONNX, where the exporter and a runtime are installed."""

import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geolib.encodings import METHODS, build
from geolib.rotations import grid_positions

pytest.importorskip("onnxscript", reason="needs onnxscript and onnxruntime")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxscript and onnxruntime")

NOT_IN_ONNX = {"sympow-gates"}  # a running maximum, which finds the last reset, has no operator there


class Block(nn.Module):
    """Attention with an encoding, on a grid."""

    def __init__(self, name):
        super().__init__()
        self.encoding, self.qkv = build(name, width=48, heads=2, grid=(3, 4)), nn.Linear(48, 144)
        self.register_buffer("positions", grid_positions(3, 4))

    def forward(self, x):
        x = self.encoding.embed(x, self.positions)
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 24)).permute(2, 0, 3, 1, 4)
        return self.encoding.place(self.positions).layer(0).attention(q, k, v, x)


@pytest.mark.parametrize("name", [*(each for each in METHODS if each not in NOT_IN_ONNX), "rope+lf", "liere+lf"])
def test_a_method_s_attention_is_the_same_in_onnx(name):
    torch.manual_seed(0)
    block, x, file = Block(name).eval(), torch.randn(2, 12, 48), io.BytesIO()
    torch.onnx.export(block, (x,), dynamo=True, verbose=False).save(file)
    session = runtime.InferenceSession(file.getvalue())
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_close(torch.from_numpy(found), block(x).detach(), atol=1e-5, rtol=0)
