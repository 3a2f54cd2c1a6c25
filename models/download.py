"""The callback that reports a download. Nothing here needs torch."""

from collections.abc import Callable

# Called while a file of a model is downloaded, with the bytes so far and those of the whole file, if known.
OnDownload = Callable[[int, int | None], None]
