"""The predictor and the joint compute what the papers write down."""

import pytest
import torch

from models.heads.transducer import Predictor


def lstm_by_hand(lstm, inputs):
    """Run a stack of LSTM layers over inputs [steps, width] by their equations; the last layer's outputs."""
    for layer in range(lstm.num_layers):
        weight_ih, weight_hh, bias_ih, bias_hh = lstm.all_weights[layer]
        hidden = cell = torch.zeros(lstm.hidden_size, dtype=inputs.dtype)
        outputs = []
        for step in inputs:
            gates = weight_ih @ step + bias_ih + weight_hh @ hidden + bias_hh
            keep_in, forget, candidate, out = gates.chunk(4)
            cell = forget.sigmoid() * cell + keep_in.sigmoid() * candidate.tanh()
            hidden = out.sigmoid() * cell.tanh()
            outputs.append(hidden)
        inputs = torch.stack(outputs)
    return inputs


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_predictor_reads_labels_one_by_one_as_an_lstm_reads_the_sequence(layers, folded):
    torch.manual_seed(0)
    predictor = Predictor(vocabulary_size=6, width=4, layers=layers)
    if folded:
        predictor.fold()
    predictor.double()
    sequences = torch.tensor([[6, 1, 5, 0], [6, 2, 2, 3]])

    state = predictor.initial_state(batch=2)
    outputs = []
    for labels in sequences.T:
        output, state = predictor(labels, state)
        outputs.append(output)

    for row, labels in enumerate(sequences):
        expected = lstm_by_hand(predictor.lstm, predictor.embedding(labels))
        torch.testing.assert_close(torch.stack(outputs)[:, row], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_in_training_it_reads_all_labels_at_once_as_it_reads_them_one_by_one(layers):
    torch.manual_seed(0)
    predictor = Predictor(vocabulary_size=6, width=4, layers=layers).double()
    labels = torch.tensor([[1, 5, 0], [2, 2, 3]])

    state = predictor.initial_state(batch=2)
    outputs = []
    for column in [torch.full((2,), predictor.blank), *labels.T]:
        output, state = predictor(column, state)
        outputs.append(output)

    torch.testing.assert_close(predictor.read(labels), torch.stack(outputs, dim=1))


@torch.no_grad()
def test_in_bfloat16_the_cell_still_grows_by_less_than_it_would_be_rounded_by():
    predictor = Predictor(vocabulary_size=2, width=1, layers=1)
    predictor.lstm.weight_hh_l0.zero_()
    write, keep, content, show = 0.0, 30.0, 0.004, 0.0
    predictor.lstm.bias_ih_l0.copy_(torch.tensor([write, keep, content, show]))
    predictor.lstm.weight_ih_l0.zero_()
    predictor.lstm.bias_hh_l0.zero_()
    predictor.fold()
    predictor.to(torch.bfloat16)

    state, label = predictor.initial_state(batch=1), torch.tensor([1])
    for _ in range(1000):
        output, state = predictor(label, state)

    assert output.dtype == torch.bfloat16
    assert state[1].item() == pytest.approx(2.0, rel=0.01)  # rounded, it stays below 1
