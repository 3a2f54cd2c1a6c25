"""Make the golden models of tests/data/golden/variant-*: what NeMo computes for encoders that the others lack.

    runs/nemo-venv/bin/python -m tests.nemo.make_variants [NAME ...]

NeMo has an environment of its own (`make nemo-check` installs it). Weights are random, and wide enough for a forgotten
term to show. Heads are drawn until no decision is close. What is recorded comes out of the model read back
from its archive.
"""

import contextlib
import json
import logging
import sys
import tempfile
import wave
from pathlib import Path

import nemo
import nemo.collections.asr as nemo_asr
import numpy as np
import sentencepiece
import torch
from nemo.collections.asr.parts.utils.timestamp_utils import process_timestamp_outputs
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import save_file

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
CLOSE = 0.02  # well over the noise of log-probabilities, 5e-3 at most
WIDTH = 32
TEXT = "the quick brown fox jumps over a lazy dog and then it rests near the old stone bridge, by the water. who knows?"

MODULES = "nemo.collections.asr.modules"
FRONT_END = {
    "_target_": f"{MODULES}.AudioToMelSpectrogramPreprocessor",
    "window_size": 0.025,
    "window_stride": 0.01,
    "features": 80,
    "n_fft": 512,
    "dither": 1e-5,
    "pad_to": 0,
}
CONFORMER = {
    "_target_": f"{MODULES}.ConformerEncoder",
    "feat_in": 80,
    "n_layers": 2,
    "d_model": WIDTH,
    "n_heads": 4,
    "ff_expansion_factor": 2,
    "conv_kernel_size": 9,
}
FASTCONFORMER = CONFORMER | {"subsampling": "dw_striding", "subsampling_factor": 8, "subsampling_conv_channels": 16}
BLOCK = {"filters": WIDTH, "repeat": 1, "kernel": [5], "stride": [1], "dilation": [1], "dropout": 0.0, "residual": True}
SQUEEZED = BLOCK | {"separable": True, "se": True, "se_context_size": 16, "se_reduction_ratio": 4}
STRIDED = {"stride": [2], "stride_last": True, "residual_mode": "stride_add", "repeat": 2}
CONVOLUTIONS = {"_target_": f"{MODULES}.ConvASREncoder", "feat_in": 80, "activation": "swish", "conv_mask": True}
CITRINET = [
    SQUEEZED | {"residual": False},
    SQUEEZED | STRIDED | {"kernel": [11]},
    SQUEEZED | {"kernel": [13], "repeat": 3, "residual_mode": "add"},
    SQUEEZED | STRIDED | {"kernel": [25], "kernel_size_factor": 0.5},
    SQUEEZED | {"filters": 48, "kernel": [41], "residual": False},
]
GROUPS = [
    BLOCK | {"residual": False, "stride": [4], "kernel": [11]},
    BLOCK | {"groups": 4, "repeat": 2, "residual_mode": "max"},
    BLOCK | {"groups": 2, "separable": True, "filters": 48, "dilation": [3], "repeat": 2, "se": True},
    BLOCK | {"residual_dense": True, "residual_mode": "add"},
    BLOCK | {"residual_dense": True, "separable": True, "repeat": 2},
]
VARIANTS = {
    "local-attention": FASTCONFORMER | {"self_attention_model": "rel_pos_local_attn", "att_context_size": [6, 6]},
    "global-token": FASTCONFORMER
    | {"self_attention_model": "rel_pos_local_attn", "att_context_size": [6, 6], "global_tokens": 1},
    "layer-norm": CONFORMER | {"conv_norm_type": "layer_norm", "subsampling_conv_channels": 16},
    "stacking": CONFORMER | {"subsampling": "stacking", "subsampling_factor": 6, "self_attention_model": "abs_pos"},
    "citrinet": CONVOLUTIONS | {"jasper": CITRINET},
    "convolution-groups": CONVOLUTIONS | {"jasper": GROUPS, "activation": "hardtanh"},
}
WORD_PIECES = ("stacking",)
FEATURES = "local-attention"  # whose features are stored for those that were made with it: they have one front end
# Made on another machine, on which features are rounded otherwise: as those of fastconformer-ctc-bpe.
LATER = ("global-token",)


def clips():
    for path in sorted((GOLDEN / "clips").glob("*.wav")):
        with wave.open(str(path)) as file:
            yield path.stem, np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def sentence_pieces(folder):
    (folder / "text.txt").write_text("\n".join(TEXT.split(",")), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=40,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    pieces = (folder / "tokenizer.vocab").read_text(encoding="utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join(piece.split("\t")[0] for piece in pieces), encoding="utf-8")
    return {"dir": str(folder), "type": "bpe"}


def word_pieces(folder):
    """NeMo asks for bert-base-cased whatever the vocabulary; a folder of that name stands for the download."""
    words = TEXT.replace(",", " ,").replace(".", " .").replace("?", " ?").split()
    ends = [f"##{word[len(word) // 2 :]}" for word in words if len(word) > 3]
    starts = [word[: max(1, len(word) // 2)] for word in words]
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *starts, *ends, ".", ",", "?"])
    bert = Path("bert-base-cased")
    for place in (folder, bert):
        place.mkdir(exist_ok=True)
        (place / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    (bert / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": False})
    )
    (bert / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return {"dir": str(folder), "type": "wpe"}


def build(name):
    encoder, folder = VARIANTS[name], Path("tokenizer")
    folder.mkdir(exist_ok=True)
    width = encoder["jasper"][-1]["filters"] if "jasper" in encoder else WIDTH
    config = {
        "sample_rate": 16000,
        "preprocessor": FRONT_END,
        "encoder": encoder,
        "decoder": {"_target_": f"{MODULES}.ConvASRDecoder", "feat_in": width, "num_classes": -1, "vocabulary": []},
        "tokenizer": word_pieces(folder) if name in WORD_PIECES else sentence_pieces(folder),
        "decoding": {"strategy": "greedy_batch"},
        "validation_ds": {"manifest_filepath": None, "defer_setup": True},
    }
    torch.manual_seed(0)
    return nemo_asr.models.EncDecCTCModelBPE(cfg=DictConfig(config))


@torch.no_grad()
def randomise(module):
    """Give every tensor values that show when it is forgotten, also where training starts from zeros and ones."""
    for name, tensor in module.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("running_mean") or "pos_bias" in name:
            tensor.normal_(std=0.3)
        elif tensor.dim() == 1:
            tensor.add_(0.2 * torch.randn_like(tensor))
        elif tensor.is_floating_point():
            tensor.normal_(std=1.4 / tensor[0].numel() ** 0.5)


@torch.no_grad()
def decide(model, encoded):
    """Draw heads until one that says nothing at about every other frame has no close decision."""
    frames, layer = torch.cat(encoded), model.decoder.decoder_layers[0]
    for attempt in range(100_000):
        torch.manual_seed(attempt)
        logits = frames @ layer.weight.normal_().squeeze(-1).T
        scale = 4 / (logits - logits.mean(0)).std()
        bias = -scale * logits.mean(0)
        logits = scale * logits + bias
        behind = (logits[:, :-1].max(dim=1).values - logits[:, -1]).sort().values
        behind = behind[len(behind) // 3 : -len(behind) // 3]
        widest = behind.diff().argmax()
        nothing = behind[widest : widest + 2].mean()
        bias[-1] += nothing
        logits[:, -1] += nothing
        if lead(logits) > CLOSE:
            layer.weight.mul_(scale)
            layer.bias.copy_(bias)
            return
    raise RuntimeError("every head has close decisions")


def prepared(model):
    """Return a model as ``transcribe`` uses it."""
    model.eval()
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.cfg.decoding.compute_timestamps = True
    model.change_decoding_strategy(model.cfg.decoding, verbose=False)
    return model


@torch.no_grad()
def encode(model, samples):
    features, length = model.preprocessor(
        input_signal=torch.from_numpy(samples)[None], length=torch.tensor([len(samples)])
    )
    encoded, frames = model.encoder(audio_signal=features, length=length)
    return features[0], encoded, int(length), frames


def lead(scores):
    best = scores.topk(2, dim=-1).values
    return float((best[..., 0] - best[..., 1]).min())


@torch.no_grad()
def record(model, samples):
    """Return what NeMo computes for one clip alone: facts, and tensors by name."""
    features, encoded, length, frames = encode(model, samples)
    scores = model.decoder(encoder_output=encoded)
    (hypothesis,) = model.decoding.ctc_decoder_predictions_tensor(
        scores, decoder_lengths=frames, return_hypotheses=True
    )
    stride = model.cfg.preprocessor.window_stride
    hypothesis = process_timestamp_outputs(hypothesis, model.encoder.subsampling_factor, stride)[0]
    scores = scores[0, : int(frames)]
    best, blank = scores.argmax(-1).tolist(), scores.size(-1) - 1
    first = [i for i, label in enumerate(best) if label != blank and (i == 0 or label != best[i - 1])]
    ctc = {
        "tokens": [best[frame] for frame in first],
        "first_frames": first,
        "timestep": [int(frame) for frame in hypothesis.timestamp["timestep"]],
        "text": hypothesis.text,
        "word_timestamps": [{"word": word["word"]} for word in hypothesis.timestamp["word"]],
        "min_margin": lead(scores),
    }
    facts = {"samples": len(samples), "feature_length": length, "encoder_length": int(frames), "ctc": ctc}
    tensors = {"features": features, "encoder": encoded[0, :, : int(frames)].T, "logprobs": scores}
    return facts, {key: value.contiguous() for key, value in tensors.items()}


def make(name):
    folder = GOLDEN / f"variant-{name}"
    folder.mkdir(exist_ok=True)
    archive = folder / "model.nemo"
    model, spoken = prepared(build(name)), dict(clips())
    randomise(model.encoder)
    encoded = [encode(model, samples) for samples in spoken.values()]
    decide(model, [frames[0, :, : int(length)].T for _, frames, _, length in encoded])
    model.save_to(str(archive))
    model = prepared(nemo_asr.models.ASRModel.restore_from(str(archive), map_location="cpu"))
    entries, tensors = {}, {}
    for clip, samples in spoken.items():
        facts, values = record(model, samples)
        entries[clip] = {"alone": facts}
        if name != FEATURES:
            del values["features"]
        tensors |= {f"alone/{clip}/{key}": value for key, value in values.items()}
    save_file(tensors, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)
    about = {"nemo": nemo.__version__, "torch": torch.__version__, "encoder": OmegaConf.to_container(model.cfg.encoder)}
    source = "fastconformer-ctc-bpe" if name in LATER else f"variant-{FEATURES}"
    facts = about | {"features_from": source, "clips": entries}
    (folder / "expected.json").write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    torch.set_num_threads(1)
    logging.getLogger("nemo_logger").setLevel(logging.ERROR)
    for name in sys.argv[1:] or VARIANTS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # so that archives name no machine
            make(name)


if __name__ == "__main__":
    main()
