"""Reading NeMo's decoding configurations. Only greedy search is supported, except for attention decoders."""

from models.checkpoint.section import Section
from models.config import MAX_BEAM

MAX_DURATION = 64

# Where a checkpoint sets no limit: the default of NeMo's CUDA graphs, and the value in its published models.
_DEFAULT_MAX_SYMBOLS = 10


def ctc_decoding(section: Section) -> None:
    """Check the decoding section of a CTC head.

    Raises:
        UnsupportedValueError: if it asks for anything but greedy search.
    """
    _check_shared(section)
    section.ignore("ctc_timestamp_type", "batch_dim_index", "wfst")
    section.refuse_the_rest(unless_off=True)


def transducer_decoding(section: Section) -> tuple[tuple[int, ...], int]:
    """Read the decoding section of a transducer.

    Returns:
        The durations of a TDT, empty for an RNN-T or if the section does not give them; and the most labels in one
        frame.

    Raises:
        UnsupportedValueError: if it asks for anything but greedy search of an RNN-T or a TDT.
    """
    _check_shared(section)
    section.expect("model_type", None, "rnnt", "tdt")
    section.expect("big_blank_durations", None, [])
    section.expect("strip_lang_tags", False, None)
    section.ignore("rnnt_timestamp_type", "fused_batch_size", "compute_langs", "lang_tag_pattern")
    section.ignore("tdt_include_token_duration", "compute_hypothesis_token_set", "durations")
    section.refuse_the_rest(unless_off=True)

    greedy = section.section("greedy")
    limit = next((key for key in ("max_symbols", "max_symbols_per_step") if greedy.get(key)), None)
    max_symbols = greedy.integer(limit, high=100) if limit else _DEFAULT_MAX_SYMBOLS
    return section.integers("durations", low=0, high=MAX_DURATION), max_symbols


def attention_decoding(section: Section) -> tuple[int | None, int, float]:
    """Return the ``length_margin``, ``beam`` and ``length_penalty`` of an attention decoder (its configuration's).

    Raises:
        UnsupportedValueError: if it asks for anything but a search by the decoder's own scores.
    """
    section.expect("strategy", "beam", "greedy", "greedy_batch")
    section.expect("temperature", None, 1, 1.0)
    section.ignore("return_best_hypothesis", "compute_langs", "compute_hypothesis_token_set", "preserve_alignments")
    section.ignore("confidence_cfg", "return_xattn_scores", "greedy", "beam")
    section.refuse_the_rest(unless_off=True)

    chosen = section.section("beam" if section.get("strategy", "beam") == "beam" else "greedy")
    chosen.expect("search_type", "default")
    chosen.expect("temperature", None)
    chosen.expect("ngram_lm_model", None)
    _check_no_boosting(chosen)
    # Weights of models that are refused above, and how many hypotheses NeMo returns.
    chosen.ignore("ngram_lm_alpha", "boosting_tree_alpha", "n_samples", "return_best_hypothesis")
    chosen.ignore("preserve_alignments", "preserve_token_confidence", "confidence_method_cfg", "max_generation_delta")
    chosen.ignore("beam_size", "len_pen")
    chosen.refuse_the_rest(unless_off=True)
    margin = chosen.integer("max_generation_delta", -1, low=-1, high=2**14)
    beam = chosen.integer("beam_size", 1, high=MAX_BEAM)
    # For the beam search that a user may ask for even if the checkpoint's own is greedy.
    length_penalty = section.section("beam").number("len_pen", 1.0, low=0.0, high=10.0)
    return None if margin < 0 else margin, beam, length_penalty


def _check_no_boosting(section: Section) -> None:
    boosting = section.section("boosting_tree")
    for key in ("model_path", "key_phrases_file", "key_phrases_list", "key_phrase_items_list"):
        boosting.expect(key, None)


def _check_shared(section: Section) -> None:
    section.expect("strategy", "greedy", "greedy_batch")
    section.expect("temperature", None, 1, 1.0)
    section.expect("word_seperator", " ")
    # Reports of scores and times, which we have our own way for, and options of beam search, which is not supported.
    section.ignore("preserve_alignments", "preserve_frame_confidence", "confidence_cfg", "compute_timestamps")
    section.ignore("segment_seperators", "segment_gap_threshold", "beam", "greedy")

    greedy = section.section("greedy")
    greedy.expect("ngram_lm_model", None)
    _check_no_boosting(greedy)
    greedy.ignore("max_symbols", "max_symbols_per_step", "loop_labels", "use_cuda_graph_decoder", "allow_cuda_graphs")
    greedy.ignore("preserve_alignments", "preserve_frame_confidence", "compute_timestamps", "ngram_lm_alpha")
    greedy.ignore("confidence_method_cfg", "confidence_measure_cfg", "boosting_tree_alpha")
    greedy.ignore("tdt_include_duration", "tdt_include_token_duration", "tdt_include_duration_confidence")
    greedy.refuse_the_rest(unless_off=True)
