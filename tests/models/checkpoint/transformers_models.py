"""Random models and tokenizers of transformers, which is imported where it is used: that alone takes seconds."""

import torch
from hypothesis import strategies as st

from models.text.prompt_writer import END
from tests.models.checkpoint.sentencepiece_models import sentencepiece_model


def converted(folder, *vocabulary, **options):
    """A tokenizer as transformers itself converts a SentencePiece model (``sentencepiece_model``)."""
    from transformers import ParakeetTokenizer
    from transformers.convert_slow_tokenizer import ParakeetConverter

    (folder / "tokenizer.model").write_bytes(sentencepiece_model(*vocabulary, **options))
    tokenizer_object = ParakeetConverter(str(folder / "tokenizer.model")).converted()
    return ParakeetTokenizer(tokenizer_object=tokenizer_object, clean_up_tokenization_spaces=False)


def random_prompted(name, vocabulary, start, shape, biases, seed, **more):
    """A model with an attention decoder whose weights, biases and running statistics all matter; its texts may end."""
    import transformers

    torch.manual_seed(seed)
    end, size = vocabulary[END], len(vocabulary)
    assert size % 8 == 0, "outputs without a piece"
    config = getattr(transformers, f"{name}Config")(
        vocab_size=size,
        encoder_config=shape | {"model_type": "parakeet_encoder", "attention_bias": biases, "convolution_bias": biases},
        eos_token_id=end,
        pad_token_id=vocabulary["<unk>"],
        bos_token_id=vocabulary["<s>"],
        decoder_start_token_id=vocabulary[start],
        **more,
    )
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    randomize(model, std=0.4)
    model.proj_out.bias.data[end] += 2.0
    return model


def randomize(model, std):
    """Have weights, biases and running statistics all matter."""
    for parameter in model.parameters():
        parameter.data.normal_(std=std)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
        elif name.endswith("running_mean"):
            buffer.normal_()


def decoder_sizes(**lists):
    """Sizes of an attention decoder, as configurations of transformers have them; ``lists`` are those of some sizes."""
    sampled = {
        "num_hidden_layers": [1, 2, 3],
        "num_attention_heads": [1, 2, 4],
        "intermediate_size": [16, 40],
        "hidden_act": ["relu", "gelu"],
    } | lists
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in sampled.items()})


def encoder_sizes(**lists):
    """Sizes of an encoder, as configurations of transformers have them; ``lists`` are those of some sizes."""
    sampled = {
        "num_attention_heads": [1, 2, 4],
        "hidden_size": [16, 24],
        "intermediate_size": [16, 40],
        "conv_kernel_size": [3, 9],
        "subsampling_factor": [4, 8],
        "subsampling_conv_channels": [4, 8],
    } | lists
    sizes = {name: st.sampled_from(values) for name, values in sampled.items()}
    return st.fixed_dictionaries({"num_hidden_layers": st.integers(1, 2), "scale_input": st.booleans()} | sizes)
