"""Checking transformers' generation configurations. Only greedy search is supported."""

from models.checkpoint.section import Section


def check_transducer_generation(section: Section, blank: int) -> None:
    """Check the generation configuration of a transducer whose labels are the ids below ``blank``.

    Raises:
        UnsupportedValueError: if it asks for anything but greedy search among all labels, started from the blank.
    """
    section.expect("decoder_start_token_id", None, blank)
    # The outputs of a TDT after the blank are durations, which a search for labels suppresses.
    suppressed = section.integers("suppress_tokens", low=0, high=2**31)
    section.require("suppress_tokens", all(token > blank for token in suppressed), f"ids above the blank, {blank}")
    _check_greedy(section)


def check_attention_generation(section: Section, end: int) -> None:
    """Check the generation configuration of an attention decoder whose texts end with the token ``end``.

    Raises:
        UnsupportedValueError: if it asks for another end or anything but greedy search.
    """
    section.expect("eos_token_id", None, end, [end])
    section.ignore("decoder_start_token_id")  # the first token of every prompt
    section.ignore("max_length", "max_new_tokens")  # the audio bounds the text
    _check_greedy(section)


def _check_greedy(section: Section) -> None:
    section.expect("num_beams", None, 1)
    section.expect("do_sample", None, False)
    section.expect("repetition_penalty", None, 1, 1.0)
    section.ignore("_from_model_config", "transformers_version", "use_cache", "return_dict_in_generate")
    section.ignore("output_attentions", "output_hidden_states", "output_scores", "output_logits")
    section.ignore("pad_token_id", "bos_token_id", "eos_token_id")
    section.ignore("temperature", "top_k", "top_p", "min_p", "typical_p")  # options of sampling
    section.refuse_the_rest_unless_off()
