"""The slow, obvious greedy transducer search, to compare the fast forms with: one utterance, one frame at a time."""

import torch

from models.heads.stateless import StatelessPredictor
from models.heads.transducer import Joint, Predictor
from models.search.preference import PHRASE_SCALE


@torch.no_grad()
def greedy_alone(encoded, predictor, joint, max_symbols, phrases=None, language_model=None):
    """Search one utterance, encoded [frames, width]; returns tokens, frames, durations and confidence as lists.

    ``phrases`` is a ``PhraseTwin``; ``language_model`` returns what it adds to a label after a text.
    """
    tokens, frames, durations, confidence = [], [], [], []
    output, state = predictor(torch.tensor([predictor.blank]), predictor.initial_state(1))
    time, symbols_here = 0, 0
    while time < len(encoded):
        logits = joint(joint.encoder_projection(encoded[time]), joint.predictor_projection(output[0])).float()
        label_logits = logits[: joint.blank + 1]
        token = int(label_logits.argmax())
        duration = joint.durations[int(logits[joint.blank + 1 :].argmax())] if joint.durations else 0
        if token == joint.blank:
            time, symbols_here = time + max(1, duration), 0
            continue
        if phrases or language_model:
            ranks = label_logits[: joint.blank].tolist()
            for label in range(joint.blank):
                ranks[label] += PHRASE_SCALE * phrases.added(tuple(tokens), label) if phrases else 0
                ranks[label] += language_model(tuple(tokens), label) if language_model else 0
            token = ranks.index(max(ranks))
        tokens.append(token)
        frames.append(time)
        durations.append(duration)
        confidence.append(float(label_logits.softmax(0)[token]))
        output, state = predictor(torch.tensor([token]), state)
        symbols_here += 1
        if duration > 0:
            time, symbols_here = time + duration, 0
        elif symbols_here == max_symbols:
            time, symbols_here = time + 1, 0
    return tokens, frames, durations, confidence


def random_transducer(seed, *, durations=(), layers=1, blank_bias=0.0, context=None):
    """A small transducer that emits, waits and jumps.

    With a context the predictor is stateless. In float64, so that another order of summation cannot turn a choice.
    """
    torch.manual_seed(seed)
    predictor = Predictor(vocabulary_size=4, width=5, layers=layers)
    if context:
        predictor = StatelessPredictor(4, 5, context, is_normalized=context == 2)
    predictor = predictor.double()
    joint = Joint(6, 5, 7, vocabulary_size=4, durations=durations).double()
    own = [] if context else [predictor.lstm.weight_ih_l0]
    with torch.no_grad():
        for weight in (*own, joint.predictor_projection.weight, joint.output.weight):
            weight.mul_(4)
        joint.output.bias[joint.blank] += blank_bias
    return predictor, joint
