"""Small SentencePiece models, trained on a few sentences."""

from functools import cache
from io import BytesIO

import sentencepiece

SENTENCES = ("the cat sat on the mat", "a dog, a cat. a mat!", "the dog sat") * 20


@cache
def sentencepiece_model(size, special=(), sentences=SENTENCES, **options):
    """A model of byte pairs with some special pieces, as a file has it."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        model_type="bpe",
        user_defined_symbols=list(special),
        minloglevel=2,
        **options,
    )
    return model.getvalue()
