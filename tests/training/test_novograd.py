"""NovoGrad moves weights as its paper says."""

import torch

from training.novograd import NovoGrad


def test_two_steps_are_those_of_the_paper():
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = NovoGrad([{"params": [weight]}], lr=0.1, betas=(0.9, 0.5), weight_decay=0.01)
    gradients = [torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0])]
    expected, mean, square = weight.detach().clone(), torch.zeros(2), None

    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        norm = float((gradient**2).sum())
        square = norm if square is None else 0.5 * square + 0.5 * norm
        mean = 0.9 * mean + gradient / square**0.5 + 0.01 * expected
        expected = expected - 0.1 * mean

    torch.testing.assert_close(weight.detach(), expected)


def test_it_goes_on_from_its_state():
    def steps(optimizer, weight, count):
        for _ in range(count):
            weight.grad = weight.detach() * 2
            optimizer.step()

    whole, parts = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    steps(NovoGrad([{"params": [whole]}], lr=0.1), whole, 4)
    first = NovoGrad([{"params": [parts]}], lr=0.1)
    steps(first, parts, 2)
    second = NovoGrad([{"params": [parts]}], lr=0.1)
    second.load_state_dict(first.state_dict())
    steps(second, parts, 2)

    assert torch.equal(whole, parts)


def test_a_large_tensor_is_moved_piece_by_piece_as_a_whole_one():
    random = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(3, 50_021, generator=random) for _ in range(2))
    flat, transposed = torch.nn.Parameter(weight.clone()), torch.nn.Parameter(weight.mT.contiguous().mT)
    optimizer = NovoGrad([{"params": [flat, transposed], "weight_decay": 0.01}], lr=0.1)

    for _ in range(3):
        for parameter in (flat, transposed):
            parameter.grad = gradient.clone()
        optimizer.step()

    assert not transposed.is_contiguous()
    torch.testing.assert_close(flat, transposed)
    assert not torch.equal(flat.detach()[:, -1], weight[:, -1])
