"""RTFx of two models of equal size with attention decoders: one of 24 layers, and one of 4 and a deeper encoder.

A decoder runs once for each token, an encoder once for all frames, so Canary-1B-Flash moved layers to the encoder
(Żelasko et al., 2025, arXiv 2503.05931). Weights are random and no token ends a text, so both models write exactly
`--tokens` tokens for each row: nonsense, but it takes the time of real words. On a GPU each model is also measured
without the kernels of a decoder's step, as "plain".
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch
from tqdm import tqdm

from benchmarks.environment import describe
from benchmarks.rows import Rows, add_rows_option
from benchmarks.timing import times_in_turns
from models.comparison import compare_kernels
from models.config import AttentionDecoderConfig, ConformerConfig, ModelConfig
from models.encoders.conformer import ConformerEncoder
from models.heads import attention_decoder
from models.heads.attention_decoder import AttentionDecoder
from models.kernels import decoder_step_on
from models.network import Network
from models.search.attention import LengthBound
from models.search.attention_search import AttentionSearch
from training.student import FRONT_END

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PROMPT = 9
_VOCABULARY = 5248
_MELS = 128
_FEATURES_PER_SECOND = 100


class EncoderDecoder:
    """An encoder and a decoder of random weights on a device."""

    def __init__(
        self,
        encoder_layers: int,
        decoder_layers: int,
        width: int,
        device: str,
        dtype: torch.dtype,
        *,
        in_operations: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.layers = f"{encoder_layers}+{decoder_layers}" + in_operations * " plain"
        self._kernels = (lambda *_: None) if in_operations else decoder_step_on
        encoder, decoder = _encoder(encoder_layers, width), _decoder(decoder_layers, width)
        features = replace(FRONT_END, mels=_MELS)
        config = ModelConfig(
            "EncDecMultiTaskModel", features, encoder, _VOCABULARY, ctc=False, transducer=None, attention=decoder
        )
        network = Network(config).eval()
        self.parameters = _parameters(network)
        # Prepared like a model in service.
        network.fold()
        network.to(device, dtype)
        if device == "cpu":
            network.pack(dtype)
        assert network.attention_decoder
        compare_kernels(network.encoder, network.attention_decoder, torch.device(device), dtype)
        self._encoder = network.encoder
        self._search = AttentionSearch(network.attention_decoder, _VOCABULARY, graphed=device != "cpu")

    @torch.no_grad()
    def write(self, features: torch.Tensor, tokens: int) -> None:
        """Encode a batch [batch, mels, frames], and write ``tokens`` tokens of each row."""
        lengths = torch.full((features.size(0),), features.size(2), device=features.device)
        encoded, frames = self._encoder(features, lengths)
        prompts = torch.arange(_PROMPT, device=features.device).repeat(features.size(0), 1)
        bound = LengthBound(torch.full_like(frames, _PROMPT + tokens), _PROMPT + tokens)
        with patch.object(attention_decoder, "decoder_step_on", self._kernels):
            found = self._search.search(encoded, frames, prompts, bound)
        if any(len(row.tokens) != tokens for row in found.rows()):
            raise SystemExit("the search stopped a text that repeats itself; with up to 128 --tokens it never does")


def _encoder(layers: int, width: int) -> ConformerConfig:
    return ConformerConfig(
        mels=_MELS,
        layers=layers,
        width=width,
        heads=8,
        feed_forward_width=4 * width,
        kernel_size=9,
        subsampling="dw_striding",
        subsampling_factor=8,
        subsampling_channels=min(256, width),
        bias=True,
        scale_input=False,
    )


def _decoder(layers: int, width: int) -> AttentionDecoderConfig:
    return AttentionDecoderConfig(
        width=width,
        layers=layers,
        heads=8,
        feed_forward_width=4 * width,
        activation="relu",
        positions=1024,
        length_margin=None,
    )


def encoder_layers_of_equal_size(width: int, layers: int, deep: int, shallow: int) -> int:
    """Return how many layers the encoder of the model with the shallow decoder has, for two models of equal size.

    Args:
        width: width of encoder and decoder.
        layers: layers of the encoder of the model with the deep decoder.
        deep: layers of the deep decoder.
        shallow: layers of the shallow one.
    """
    with torch.device("meta"):
        encoder = _parameters(ConformerEncoder(_encoder(2, width))) - _parameters(ConformerEncoder(_encoder(1, width)))
        one, two = (_parameters(AttentionDecoder(_decoder(count, width), width, _VOCABULARY)) for count in (1, 2))
    return layers + round((deep - shallow) * (two - one) / encoder)


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=sorted(_DTYPES), default="float32")
    parser.add_argument("--width", type=int, default=1024, help="width of encoder and decoder")
    parser.add_argument("--encoder-layers", type=int, default=24, help="layers of the encoder with the deep decoder")
    parser.add_argument("--decoder-layers", type=int, nargs=2, default=[24, 4], metavar=("DEEP", "SHALLOW"))
    parser.add_argument("--seconds", type=float, default=30.0, help="audio of each row")
    parser.add_argument("--tokens", type=int, default=100, help="tokens of each row; speech has about three a second")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each batch; the median counts")
    add_rows_option(parser)
    args = parser.parse_args()

    deep, shallow = args.decoder_layers
    if deep <= shallow:
        parser.error("of --decoder-layers, the first number must be the larger one")
    moved = encoder_layers_of_equal_size(args.width, args.encoder_layers, deep, shallow)
    forms = [False] if decoder_step_on(torch.device(args.device), _DTYPES[args.dtype]) is None else [False, True]
    models = [
        EncoderDecoder(encoder, decoder, args.width, args.device, _DTYPES[args.dtype], in_operations=plain)
        for plain in forms
        for encoder, decoder in ((args.encoder_layers, deep), (moved, shallow))
    ]
    for model in models:
        print(f"{model.layers} layers: {model.parameters / 1e6:.0f} million parameters")
    about = {option: value for option, value in vars(args).items() if option not in ("batch", "rows")}
    rows = Rows("decoding", about | describe(torch.device(args.device)), args.rows)
    _measure(models, args, rows)
    print(f"{'batch':>6} " + " ".join(f"{model.layers + ' RTFx':>16}" for model in models) + f" {'ratio':>6}")
    for row in rows:
        print(
            f"{row['batch']:6d} " + " ".join(f"{rtfx:16.1f}" for rtfx in row["rtfx"].values()), f"{row['ratio']:6.2f}"
        )
    print(rows.line())


def _measure(models: Sequence[EncoderDecoder], args: argparse.Namespace, rows: Rows) -> None:
    """Measure the models in turns, batch by batch."""
    for (batch,) in tqdm(rows.missing((batch,) for batch in args.batch), unit="batch", disable=None):
        frames = int(args.seconds * _FEATURES_PER_SECOND)
        features = torch.randn(batch, _MELS, frames, device=args.device, dtype=_DTYPES[args.dtype])
        medians = _medians(models, features, args)
        rtfx = [args.seconds * batch / median for median in medians]
        speeds = {model.layers: value for model, value in zip(models, rtfx, strict=True)}
        rows.add((batch,), {"batch": batch, "rtfx": speeds, "ratio": rtfx[1] / rtfx[0]})


def _medians(models: Sequence[EncoderDecoder], features: torch.Tensor, args: argparse.Namespace) -> list[float]:
    """Return the seconds of the median run of each model; they run in turns, after an unmeasured run of each."""
    # A call ends with the copy of the tokens to the host.
    calls = {model.layers: partial(model.write, features, args.tokens) for model in models}
    return [statistics.median(times) for times in times_in_turns(calls, args.repeats, warm_ups=1).values()]


if __name__ == "__main__":
    main()
