"""Importing fovea again under PyTorch, which keeps the operators that the first import registered."""

import subprocess
import sys

CODE = """
import gc, sys, torch

def forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "fovea"]:
        del sys.modules[name]

def once(fovea):
    import fovea.torch, fovea.nn
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    rope = fovea.Rope(4)
    call = lambda q: fovea.attention(fovea.rotate(q, rope), q, q, mask=fovea.Causal())
    expected, = torch.autograd.grad(call(q).square().sum(), q)
    torch._dynamo.reset()
    graph = torch.compile(call, backend="aot_eager", fullgraph=True)
    found, = torch.autograd.grad(graph(q).square().sum(), q)
    assert torch.allclose(found, expected, atol=1e-6)
    torch.autograd.functional.jacobian(call, q, vectorize=True)
    with fovea.torch.patched():
        torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    # Errors that the operator raises are those of the package that was imported last.
    hard = torch.compile(lambda q: fovea.attention(q, q, q, normalizer=fovea.HardSample(), seed=1), backend="aot_eager")
    try:
        hard(q).sum().backward()
    except fovea.InvalidArgument as error:
        assert "score_function" in str(error)
    else:
        raise AssertionError
    return graph, q

{first}
import fovea
graph, q = once(fovea)
before = graph(q)
for round in range(3):
    forget()
    import fovea
    once(fovea)
    gc.collect()
    assert torch.equal(graph(q), before)  # what was compiled before
print("done")
"""


def _said(first):
    return subprocess.run([sys.executable, "-c", CODE.replace("{first}", first)], capture_output=True, text=True)


def test_import_once_more():
    for first in ("", "import fovea, fovea.nn; forget()"):
        done = _said(first)
        assert done.stdout == "done\n" and not done.stderr, done.stderr
