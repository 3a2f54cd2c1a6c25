"""Comparing the kernels with plain operations, on the device at hand and with the model's own weights.

A kernel may compile and compute wrong numbers: versions of Triton and of its assembler have done so on current GPUs.
So each is compared before it is used, at both ends of its sizes, with random frames of ragged lengths.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from models.device.fast_paths import FAST_PATHS, FastPath
from models.encoders.conformer import ConformerEncoder, ConformerLayer, added
from models.encoders.padding import Padding
from models.heads.attention_decoder import AttentionDecoder
from models.kernels import FRAMES_WORTH_A_KERNEL

# The allowed error, as a share of the largest value, or as a multiple of the error of plain operations in this dtype,
# whichever is larger.
_ALLOWED_SHARE = 2.0**-6
_ALLOWED_RATIO = 1.5
# Encoder frames of each row: a batch of a few frames, and one of many.
_FEW, _MANY = (3, 1), (544, 187, 1, 0)
_SEED = 0

Compute = Callable[[], tuple[Tensor, ...]]


@torch.no_grad()
def compare_kernels(
    encoder: nn.Module, attention_decoder: AttentionDecoder | None, device: torch.device, dtype: torch.dtype
) -> None:
    """Compare the kernels that a network would use with plain operations; those that disagree are barred.

    A network that was not compared uses only kernels that others like it, on this device and in this dtype, agreed on.

    Args:
        encoder: folded, on the device.
        attention_decoder: the same, if there is one.
        device: the device; nothing is done where kernels do not run.
        dtype: dtype of the weights.
    """
    if not FAST_PATHS.suits(device):
        return
    generator = torch.Generator(device).manual_seed(_SEED)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    if isinstance(encoder, ConformerEncoder):
        for lengths in (_FEW, _MANY):
            _compare_encoder(encoder, lengths, noise)
    if attention_decoder is not None:
        for rows in (1, 32):
            _compare_decoder(attention_decoder, rows, noise)


def compare(path: FastPath, compute: Compute, exactly: Compute) -> None:
    """Compare the kernels of a path with plain operations: they are used from now on, or the path is barred.

    Args:
        path: the path.
        compute: does the work in the model's dtype; it takes the path unless that is left out.
        exactly: does it in float32, with the same weights and inputs.

    Raises:
        RuntimeError: if memory ran out.
    """
    if not FAST_PATHS.allows(path):
        return
    with FAST_PATHS.trying(path):
        # Only this path is compared; others are plain in both.
        with FAST_PATHS.plainly(*set(FastPath) - {path}):
            fast = compute()
        if not FAST_PATHS.has_taken(path):
            return
        with FAST_PATHS.plainly():
            plain = compute()
            with torch.autocast(plain[0].device.type, enabled=False):
                exact = exactly()
        for one, its_plain, its_exact in zip(fast, plain, exact, strict=True):
            error, own = _error(one, its_exact), _error(its_plain, its_exact)
            bound = max(_ALLOWED_SHARE * float(its_exact.abs().max()), _ALLOWED_RATIO * own)
            why = f"its error is {error:.3g}, that of plain operations {own:.3g}"
            if not FAST_PATHS.judge(path, why, agrees=error <= bound):  # not if it is no number
                return


def _error(values: Tensor, exact: Tensor) -> float:
    return float((values.double() - exact.double()).abs().max())


def _compare_encoder(encoder: ConformerEncoder, known: Sequence[int], noise: Callable[..., Tensor]) -> None:
    """Compare each kind of module, that of the first layer; kernels do not look at the weights' values."""
    config = encoder.config
    subsampling, layer = encoder.subsampling, encoder.layers[0]
    assert isinstance(layer, ConformerLayer)
    exact_layer = deepcopy(layer).float()
    longest = max(known)
    lengths = torch.tensor(known, device=layer.norm.weight.device)
    padding = Padding(lengths, longest, sum(known))
    frames = padding.without(noise(len(known), longest, config.width))
    change = noise(*frames.shape)
    positions = encoder.positions(noise(1, longest, config.width))

    if subsampling.may_use_kernels():
        features = noise(len(known), config.mels, longest * config.subsampling_factor)
        own_lengths = lengths * config.subsampling_factor
        exact = deepcopy(subsampling).float()
        kept = padding.valid[:, :, None]  # kernels leave other values in the padding
        compare(
            FastPath.SUBSAMPLING,
            lambda: (subsampling(features, own_lengths)[0] * kept,),
            lambda: (exact(features.float(), own_lengths)[0] * kept,),
        )
    compare(
        FastPath.ATTENTION,
        lambda: (layer.attention(frames, positions, padding),),
        lambda: (exact_layer.attention(frames.float(), positions.float(), padding),),
    )
    compare(
        FastPath.CONVOLUTION,
        lambda: (layer.convolution(frames, padding),),
        lambda: (exact_layer.convolution(frames.float(), padding),),
    )
    compare(
        FastPath.SUMS,
        lambda: added(frames, change, 0.5, layer.norm),
        lambda: added(frames.float(), change.float(), 0.5, exact_layer.norm),
    )
    if longest > max(_FEW):
        many = noise(1, FRAMES_WORTH_A_KERNEL + 1, config.width)
        feed, exact_feed = layer.first_feed_forward, exact_layer.first_feed_forward
        compare(FastPath.FEED_FORWARD, lambda: (feed(many),), lambda: (exact_feed(many.float()),))


def _compare_decoder(decoder: AttentionDecoder, rows: int, noise: Callable[..., Tensor]) -> None:
    """Compare the scores after two tokens, so that the second reads what the first has written."""
    exact = deepcopy(decoder).float()
    width = decoder.config.width if decoder.encoder_projection is None else decoder.encoder_projection.in_features
    encoded = noise(rows, max(_MANY), width)
    lengths = torch.arange(rows, device=encoded.device) * max(_MANY) // rows + 1
    tokens = torch.arange(2 * rows, device=encoded.device).view(rows, 2) % decoder.vocabulary_size

    def scores(decoder: nn.Module, encoded: Tensor) -> tuple[Tensor]:
        assert isinstance(decoder, AttentionDecoder)
        memory, cache = decoder.memory(encoded, lengths), decoder.cache(rows, 4)
        place = torch.zeros(1, dtype=torch.int64, device=encoded.device)
        decoder(tokens[:, :1], place, memory, cache)
        return (decoder(tokens[:, 1:], place + 1, memory, cache),)

    compare(FastPath.DECODER_STEP, lambda: scores(decoder, encoded), lambda: scores(exact, encoded.float()))
