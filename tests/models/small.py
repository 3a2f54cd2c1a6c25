"""A small Conformer, of which a test changes what it is about."""

from models.config import ConformerConfig

SMALL = ConformerConfig(
    mels=8,
    layers=1,
    width=12,
    heads=2,
    feed_forward_width=16,
    kernel_size=5,
    subsampling="dw_striding",
    subsampling_factor=4,
    subsampling_channels=2,
    bias=True,
    scale_input=False,
)
