"""Published models that look as if Steno served them and that it does not, with what to serve instead."""

import re

# The first pattern that a name on the hub has decides.
_OTHERS = (
    (
        r"canary-qwen|qwen|-llm|granite-speech|voxtral|phi-4|ultravox",
        "a language model that takes speech",
        "nvidia/canary-1b-v2",
    ),
    (r"diar|sortformer|msdd", "a diariser, which says who speaks", "nvidia/parakeet-tdt-0.6b-v3, with `multichannel`"),
    (r"titanet|speakerverification|ecapa", "a network for voices, which writes no text", "nvidia/parakeet-tdt-0.6b-v3"),
    (r"tts|fastpitch|hifigan|magpie|codec", "a model that speaks", "nvidia/parakeet-tdt-0.6b-v3"),
    (
        r"redux|-mlx|mlx-|gguf|coreml|openvino|-onnx|onnx-|ctranslate2|-ct2|w4a16|-awq|-gptq|-fp8|-nvfp4",
        "a conversion for another program",
        "the model that it was made from",
    ),
)


def other_kind(repository: str) -> str | None:
    """Return what a model is that Steno does not serve, and what to serve instead; None if its name does not say so.

    Args:
        repository: owner and name on the hub.
    """
    for pattern, kind, instead in _OTHERS:
        if re.search(pattern, repository, re.IGNORECASE):
            return f"{repository} is {kind}, which Steno does not serve; serve {instead} instead"
    return None
