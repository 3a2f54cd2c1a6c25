"""Completes the configuration of a model that takes prompts, from its vocabulary."""

import logging
from dataclasses import replace

from models.config import ModelConfig
from models.errors import UnsupportedValueError
from models.text.prompt_writer import required_pieces, with_vocabulary
from models.text.tokenizers import Tokenizer

log = logging.getLogger("steno.models")


def prompted(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """Return a configuration completed from the vocabulary's pieces; that of a model without prompts does not change.

    Raises:
        UnsupportedValueError: if the vocabulary lacks a special piece of the prompts.
    """
    if config.prompts is None:
        return config
    prompts = with_vocabulary(config.prompts, tokenizer.pieces)
    named, taken = config.prompts.default_language, prompts.default_language
    if taken != named:
        log.warning("the model does not speak its default language, %s; %s takes its place", named, taken)
    pieces = set(tokenizer.pieces)
    if missing := [piece for piece in required_pieces(prompts) if piece not in pieces]:
        without = f"a vocabulary without {missing[0]}"
        raise UnsupportedValueError("tokenizer", without, "one with all special pieces of prompts")
    return replace(config, vocabulary_size=len(tokenizer.pieces), prompts=prompts)
