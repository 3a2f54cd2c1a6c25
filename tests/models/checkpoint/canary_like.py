"""Toy Canary checkpoints laid out like the released ones, which have random weights here.

Names and shapes are written down here a second time, from what NeMo creates, and not from the table under test.
"""

import sentencepiece
import torch
import yaml

from tests.models.checkpoint import released_like
from tests.models.checkpoint.nemo_files import CONFIG, CONFIGS, WEIGHTS, saved
from tests.models.checkpoint.released_like import affine
from tests.models.checkpoint.sentencepiece_models import sentencepiece_model

_FIRST = ["<|nospeech|>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>", "<|nopnc|>"]
_CANARY = [*_FIRST, "<|transcribe|>", "<|translate|>", "<|en|>", "<|de|>", "<|es|>", "<|fr|>"]
_CANARY2 = [
    *_FIRST,
    *("<|startofcontext|>", "<|itn|>", "<|noitn|>", "<|timestamp|>", "<|notimestamp|>", "<|diarize|>"),
    *("<|nodiarize|>", "<|emo:undefined|>", "<|en|>", "<|de|>", "<|es|>", "<|fr|>", "<|0|>", "<|1|>", "<|2|>"),
]
_SENTENCES = ("the quick ferry left the harbour", "die kleine fähre verließ den hafen", "el tren", "le train") * 20


def vocabulary(*special):
    """A SentencePiece model with some special pieces, none of which begins or ends a text."""
    options = {"bos_id": -1, "eos_id": -1, "hard_vocab_limit": False}
    return sentencepiece_model(len(special) + 60, special, _SENTENCES, **options)


def members(config_name):
    """Return the files of a checkpoint with the configuration ``configs/<config_name>.yaml`` and random weights."""
    document = yaml.safe_load((CONFIGS / f"{config_name}.yaml").read_text(encoding="utf-8"))
    special = _CANARY if document["prompt_format"] == "canary" else _CANARY2
    if document["tokenizer"]["type"] == "bpe":
        files = {"unified.model": vocabulary(*special)}
    else:
        files = {"spl.model": vocabulary(*special), "en.model": vocabulary()}
        files |= {f"{language}.model": vocabulary(language) for language in ("de", "es", "fr")}
    pieces = sum(sentencepiece.SentencePieceProcessor(model_proto=file).get_piece_size() for file in files.values())
    document["head"]["num_classes"] = outputs = -(-pieces // 8) * 8
    return {
        CONFIG: yaml.safe_dump(document, sort_keys=False).encode(),
        WEIGHTS: saved(tensors(document, outputs)),
        **files,
    }


def tensors(document, outputs):
    torch.manual_seed(0)
    decoder = document["transf_decoder"]["config_dict"]
    shapes = released_like.front_end(document["preprocessor"]) | released_like.subsampling(document["encoder"])
    for index in range(document["encoder"]["n_layers"]):
        layer = released_like.layer(document["encoder"])
        shapes |= {f"encoder.layers.{index}.{name}": shape for name, shape in layer.items()}
    width = decoder["hidden_size"]
    if document["encoder"]["d_model"] != width:
        shapes |= affine("encoder_decoder_proj", width, document["encoder"]["d_model"])
    embedding = "transf_decoder._embedding"
    table = "weight" if decoder["learn_positional_encodings"] else "pos_enc"
    shapes[f"{embedding}.token_embedding.weight"] = (outputs, width)
    shapes[f"{embedding}.position_embedding.{table}"] = (decoder["max_sequence_length"], width)
    shapes |= affine(f"{embedding}.layer_norm", width)
    for index in range(decoder["num_layers"]):
        shapes |= _layer(f"transf_decoder._decoder.layers.{index}", width, decoder["inner_size"])
    shapes |= affine("transf_decoder._decoder.final_layer_norm", width)
    shapes["log_softmax.mlp.layer0.bias"] = (outputs,)
    values = {name: released_like.value(name, shape) for name, shape in shapes.items()}
    return values | {"log_softmax.mlp.layer0.weight": values[f"{embedding}.token_embedding.weight"]}


def _layer(prefix, width, inner):
    shapes = {}
    for number, attention in ((1, "first_sub_layer"), (2, "second_sub_layer")):
        shapes |= affine(f"{prefix}.layer_norm_{number}", width)
        for projection in ("query_net", "key_net", "value_net", "out_projection"):
            shapes |= affine(f"{prefix}.{attention}.{projection}", width, width)
    shapes |= affine(f"{prefix}.layer_norm_3", width)
    shapes |= affine(f"{prefix}.third_sub_layer.dense_in", inner, width)
    return shapes | affine(f"{prefix}.third_sub_layer.dense_out", width, inner)
