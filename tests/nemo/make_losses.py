"""Make tests/data/transducer_losses.safetensors: NeMo's losses of transducers, and their gradients, in small cases.

    runs/nemo-venv/bin/python -m tests.nemo.make_losses

RNN-T by its numba loss on the CPU, TDT by its plain reference. NeMo takes the scores of all frames and labels, which
come from frames, predictions and weights here; autograd carries its gradients back to these.
"""

import json
from pathlib import Path

import nemo
import torch
from nemo.collections.asr.losses.rnnt_pytorch import TDTLossPytorch
from nemo.collections.asr.parts.numba.rnnt_loss.rnnt_pytorch import RNNTLossNumba
from safetensors.torch import save_file

PATH = Path(__file__).parents[1] / "data" / "transducer_losses.safetensors"
LABELS, WIDTH = 7, 5
FRAMES, TOKENS = [6, 1, 4, 5], [3, 0, 2, 1]
DURATIONS = [0, 1, 2, 4]
CASES = {
    "rnnt": {},
    "rnnt-fast-emit": {"fast_emit": 0.25},
    "tdt": {"durations": DURATIONS},
    "tdt-sigma": {"durations": DURATIONS, "sigma": 0.05},
}


def loss(case):
    if "durations" in case:
        return TDTLossPytorch(LABELS, case["durations"], reduction="none", sigma=case.get("sigma", 0.0))
    return RNNTLossNumba(LABELS, reduction="none", fastemit_lambda=case.get("fast_emit", 0.0))


def main():
    torch.Tensor.cuda = lambda tensor: tensor  # the reference moves its sums to a GPU
    found = {}
    frames, lengths = torch.tensor(FRAMES), torch.tensor(TOKENS)
    for name, case in CASES.items():
        random = torch.Generator().manual_seed(len(found))
        outputs = LABELS + 1 + len(case.get("durations", ()))
        inputs = {
            "heard": (len(FRAMES), max(FRAMES), WIDTH),
            "said": (len(FRAMES), max(TOKENS) + 1, WIDTH),
            "weight": (outputs, WIDTH),
            "bias": (outputs,),
        }
        given = {key: torch.randn(shape, generator=random).requires_grad_() for key, shape in inputs.items()}
        tokens = torch.randint(LABELS, (len(FRAMES), max(TOKENS)), generator=random)
        hidden = (given["heard"][:, :, None] + given["said"][:, None]).relu()
        scores = hidden @ given["weight"].T + given["bias"]
        losses = loss(case)(scores, tokens, frames, lengths)
        losses.sum().backward()
        result = {"frames": frames, "labels": lengths, "tokens": tokens, "losses": losses.detach()}
        result |= {key: value.detach() for key, value in given.items()}
        result |= {f"{key}_gradient": value.grad for key, value in given.items()}
        found |= {f"{name}.{key}": value.clone() for key, value in result.items()}
    about = {"nemo": nemo.__version__, "torch": torch.__version__, "cases": json.dumps(CASES)}
    save_file(found, PATH, metadata=about)


if __name__ == "__main__":
    main()
