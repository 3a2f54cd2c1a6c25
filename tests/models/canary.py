"""The golden Canary model, its recorded prompts, and the margins of its decisions."""

from contextlib import contextmanager

from models import Prompt
from models.checkpoint import read_checkpoint
from models.text.prompt_writer import PromptWriter
from tests.conftest import GOLDEN
from tests.models import golden_data as golden

NAME = "canary-small"
PATH = GOLDEN / NAME / "model.nemo"
PROMPTS = {
    "en-en-pnc": Prompt(),
    "en-en-nopnc": Prompt(language="en", punctuation=False),
    "en-de-pnc": Prompt(language="en", target_language="de"),
    "en-en-timestamps": Prompt(timestamps=True),
}


def model():
    return golden.model(NAME)


def transcript(clip_name, prompt_name):
    return golden.facts(NAME)["clips"][clip_name]["alone"]["prompts"][prompt_name]


def options(prompt):
    """A prompt as the arguments of ``transcribe``."""
    return {
        field: getattr(prompt, field) for field in ("language", "target_language", "punctuation", "timestamps", "itn")
    }


def prompt_tokens(path, prompt):
    """The tokens of a prompt, by the prompts and the vocabulary of a checkpoint."""
    checkpoint = read_checkpoint(path)
    return PromptWriter(checkpoint.config.prompts, checkpoint.tokenizer).tokens(prompt)


@contextmanager
def leads(model):
    """Collect how far each decision is ahead of its runner-up, while the block transcribes one utterance."""
    found = []
    decoder = model.model.network.attention_decoder

    def note(_, inputs, logits):
        if inputs[0].size(1) == 1:  # a step, and not the prompt
            best = logits[:, -1, : decoder.vocabulary_size].topk(2).values
            found.append(float((best[:, 0] - best[:, 1]).min()))

    hook = decoder.register_forward_hook(note)
    try:
        yield found
    finally:
        hook.remove()
