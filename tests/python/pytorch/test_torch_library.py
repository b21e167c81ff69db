"""The library of a call, if PyTorch is imported late or not at all."""

import subprocess
import sys

import numpy as np
from torch_support import torch

import fovea
from fovea import _arrays


def test_tensors_of_any_class():
    class Own(torch.Tensor):
        pass

    theirs = _arrays.library_of(torch.ones(1))
    assert theirs is not _arrays.others() and theirs.arrays == (torch.Tensor,)
    for x in (torch.nn.Parameter(torch.ones(1)), torch.ones(1).as_subclass(Own)):
        assert _arrays.library_of(x) is theirs
    for x in (torch.Size([1]), torch.nn.Linear(1, 1), np.ones(1), [torch.ones(1)]):
        assert _arrays.library_of(x) is _arrays.others()


LATE = """
import sys
import numpy as np
import fovea
q = np.ones((1, 2, 3, 4), "f4")
fovea.attention(q, q, q, mask=lambda b, h, i, j: j <= i)
assert "torch" not in sys.modules and "fovea.torch" not in sys.modules
import torch
fovea.attention(q, q, q)
assert "fovea.torch" not in sys.modules
x = torch.ones(1, 2, 3, 4, requires_grad=True)
{call}
fovea.attention(x, x, x, mask=lambda b, h, i, j: torch.is_tensor(i) & (j <= i)).sum().backward()
assert x.grad is not None
print("done")
"""


def test_pytorch_is_imported_late():
    graph = "torch.compile(lambda x: fovea.attention(x, x, x), backend='aot_eager', fullgraph=True)(x).sum().backward()"
    for call in ("", graph):
        done = subprocess.run([sys.executable, "-c", LATE.replace("{call}", call)], capture_output=True, text=True)
        assert done.stdout == "done\n", done.stderr


def test_a_plan_detects_the_library_of_each_call():
    import pickle

    seen = []

    def visible(b, h, i, j):
        seen.append(type(i))
        return j <= i

    x = torch.ones(1, 1, 4, 8)
    step = fovea.plan(query_len=4, head_dim=8, mask=visible)
    step(x, x, x), step(x.numpy(), x.numpy(), x.numpy())
    assert set(seen) == {np.ndarray, torch.Tensor}
    for library in (_arrays.library_of(x), _arrays.others()):
        assert pickle.loads(pickle.dumps(library)) is library
