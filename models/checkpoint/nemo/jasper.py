"""Translating NeMo's ConvASREncoder, a list of blocks: Jasper, QuartzNet, Citrinet."""

from collections.abc import Iterator

from models.checkpoint.section import Section
from models.config import BlockConfig, ConvolutionActivation, JasperConfig

_MAX_BLOCKS = 128
_MAX_REPEAT = 32
_MAX_WIDTH = 2**14
_MAX_KERNEL = 1023
_MAX_SUBSAMPLING = 64

_ACTIVATIONS: dict[str, ConvolutionActivation] = {"relu": "relu", "swish": "swish", "silu": "swish"}


def parse_jasper(section: Section, mels: int) -> JasperConfig:
    """Translate the ``encoder`` section of a model whose features have ``mels`` bands."""
    _expect_what_we_do(section, mels)
    activation = section.text("activation")
    section.require("activation", activation in _ACTIVATIONS, ", ".join(_ACTIVATIONS))
    blocks = section.sections("jasper", most=_MAX_BLOCKS)
    config = JasperConfig(mels, tuple(_blocks(section, blocks)), _ACTIVATIONS[activation])
    section.refuse_the_rest()
    factor = config.subsampling_factor
    blocks[-1].require("stride", factor <= _MAX_SUBSAMPLING, f"strides whose product is at most {_MAX_SUBSAMPLING}")
    return config


def _expect_what_we_do(section: Section, mels: int) -> None:
    section.expect("feat_in", mels)
    section.expect("conv_mask", True)
    section.expect("normalization_mode", "batch")
    section.expect("residual_mode", "add", "stride_add")
    section.expect("frame_splicing", 1)
    section.expect("quantize", False)
    section.ignore("init_mode", "norm_groups")


def _blocks(encoder: Section, sections: list[Section]) -> Iterator[BlockConfig]:
    mode = encoder.get("residual_mode", "add")
    before: BlockConfig | None = None
    dense_before = False
    for section in sections:
        section.expect("residual_mode", "add", "stride_add")
        mode = section.get("residual_mode", mode)  # NeMo keeps it for the blocks that follow
        block = _block(section)
        _check_strides(section, block, mode)
        _check_inputs(section, block, before, dense_before)
        section.refuse_the_rest()
        yield block
        before, dense_before = block, dense_before or block.dense


def _block(section: Section) -> BlockConfig:
    filters = section.integer("filters", high=_MAX_WIDTH)
    ratio = section.integer("se_reduction_ratio", 8, high=_MAX_WIDTH)
    squeezed = section.flag("se", default=False)
    section.require("se_reduction_ratio", not squeezed or ratio <= filters, f"1 to filters, {filters}")
    section.expect("heads", -1)
    section.expect("groups", 1)
    section.expect("future_context", -1)
    # Options of training. In inference NeMo squeezes the whole clip, whatever the context size.
    section.ignore("dropout", "se_context_size", "se_interpolation_mode")
    return BlockConfig(
        filters=filters,
        repeat=section.integer("repeat", high=_MAX_REPEAT),
        kernel_size=_kernel_size(section),
        stride=_single(section, "stride", _MAX_SUBSAMPLING),
        dilation=_single(section, "dilation", _MAX_KERNEL),
        separable=section.flag("separable", default=False),
        residual=section.flag("residual", default=True),
        dense=section.flag("residual_dense", default=False),
        squeeze_width=filters // ratio if squeezed else None,
    )


def _single(section: Section, name: str, high: int) -> int:
    """Return the only entry of a list: NeMo writes sizes along time as lists."""
    values = section.integers(name, low=1, high=high)
    section.require(name, len(values) == 1, f"a list of one whole number from 1 to {high}")
    return values[0]


def _kernel_size(section: Section) -> int:
    """Return the kernel size times its factor, rounded down, and then up to an odd number."""
    size = int(_single(section, "kernel", _MAX_KERNEL) * section.number("kernel_size_factor", 1.0, low=0, high=16))
    section.require("kernel_size_factor", size <= _MAX_KERNEL, f"what makes kernels of at most {_MAX_KERNEL}")
    return max(size, 1) | 1


def _check_strides(section: Section, block: BlockConfig, mode: str) -> None:
    """Refuse strides that NeMo cannot compute, or that its word times do not account for."""
    last_only = section.flag("stride_last", default=False) or block.repeat == 1
    section.require("dilation", block.stride == 1 or block.dilation == 1, "[1] where the stride is more than 1")
    section.require("stride_last", block.stride == 1 or last_only, "true where a repeated block has a stride")
    joins = not block.residual or (mode == "stride_add" and not block.dense)
    section.require("stride", block.stride == 1 or joins, "[1] unless the block has no residual but stride_add")


def _check_inputs(section: Section, block: BlockConfig, before: BlockConfig | None, dense_before: bool) -> None:
    """Refuse orders of blocks in which NeMo would fail, or feed a residual something else than its block's input."""
    after_dense = before is not None and before.dense
    section.require("residual_dense", not block.dense or block.residual, "false where residual is")
    section.require("residual_dense", not block.dense or after_dense or not dense_before, "one run of dense blocks")
    section.require("residual", block.dense or not after_dense or not block.residual, "false after a dense block")
