"""Published models that look as if Steno served them and that it does not, with what to serve instead."""

import re

# The first pattern of which a name on the hub has a whole word decides.
_OTHERS = (
    (
        r"canary-qwen|qwen\w*|llm|granite-speech|voxtral|phi-4|ultravox",
        "a language model that takes speech",
        "nvidia/canary-1b-v2",
    ),
    (
        r"diar|diarization|sortformer|msdd",
        "a diariser, which says who speaks",
        "nvidia/parakeet-tdt-0.6b-v3, with `multichannel`",
    ),
    (r"titanet|speakerverification|ecapa", "a network for voices, which writes no text", "nvidia/parakeet-tdt-0.6b-v3"),
    (r"tts|fastpitch|hifigan|magpie|codec", "a model that speaks", "nvidia/parakeet-tdt-0.6b-v3"),
    (
        r"redux|mlx|gguf|coreml|openvino|onnx|ctranslate2|ct2|w4a16|awq|gptq|fp8|nvfp4",
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
        # Not \b, for which an underscore is a letter.
        if re.search(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])", repository, re.IGNORECASE):
            return f"{repository} is {kind}, which Steno does not serve; serve {instead} instead"
    return None
