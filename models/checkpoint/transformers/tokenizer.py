"""Reading the vocabulary of a transformers folder: ``tokenizer.json`` and ``tokenizer_config.json``."""

from typing import Any

from models.checkpoint.section import Section
from models.errors import UnreadableCheckpointError, UnsupportedValueError, shown
from models.text.tokenizers import WORD_START, ByteFallbackTokenizer

# Keys of tokenizer_config.json with tokens that transformers leaves out of texts.
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE_SPECIAL = ("additional_special_tokens", "extra_special_tokens")
# The sequences of steps that turn the mark of a word's beginning into a space, with equal results.
_STEPS = [["Metaspace"], ["Replace", "ByteFallback", "Fuse", "Strip"], ["ByteFallback", "Metaspace"]]


def parse_tokenizer(document: dict[str, Any], config: dict[str, Any], labels: int) -> ByteFallbackTokenizer:
    """Translate a tokenizer.

    Args:
        document: ``tokenizer.json``.
        config: ``tokenizer_config.json``; empty if there is none.
        labels: number of labels without the blank. Ids beyond them must be special tokens, such as the blank.

    Raises:
        UnsupportedValueError: if it decodes in another way than ours, or the number of pieces is not that of labels.
        UnreadableCheckpointError: if it contradicts itself.
    """
    root = Section("tokenizer.json", document)
    model = root.section("model")
    model.expect("type", "BPE")
    model.expect("continuing_subword_prefix", None, "")
    model.expect("end_of_word_suffix", None, "")
    _check_decoder(root.section("decoder"))
    pieces, special = _pieces(model.get("vocab"), root.get("added_tokens"))
    special |= _named(Section("tokenizer_config.json", config), pieces)
    if any(token not in pieces for token in range(labels)) or not special.issuperset(pieces.keys() - range(labels)):
        known = f"the {len(pieces) - len(special)} pieces and {len(special)} special tokens of tokenizer.json"
        raise UnsupportedValueError("the number of labels", labels, known)
    return ByteFallbackTokenizer([pieces[token] for token in range(labels)], special)


def _check_decoder(decoder: Section) -> None:
    steps = [decoder]
    if decoder.get("type") == "Sequence":
        listed = decoder.get("decoders")
        entries = listed if isinstance(listed, list) else []
        steps = [Section(decoder.key("decoders"), step) for step in entries if isinstance(step, dict)]
    kinds = [step.get("type") for step in steps]
    decoder.require("type", kinds in _STEPS, " or ".join(", then ".join(kinds) for kinds in _STEPS))
    for step in steps:
        if step.get("type") == "Metaspace":
            step.expect("replacement", WORD_START)
            step.expect("prepend_scheme", "always", "first")
            step.expect("add_prefix_space", None, True)  # its older name
        elif step.get("type") == "Replace":
            step.expect("pattern", {"String": WORD_START})
            step.expect("content", " ")
        elif step.get("type") == "Strip":
            step.expect("content", " ")
            step.expect("start", 1)
            step.expect("stop", 0)


def _pieces(vocabulary: object, added: object) -> tuple[dict[int, str], set[int]]:
    added = added or []
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise UnreadableCheckpointError("tokenizer.json has no vocabulary, or added_tokens are no list")
    pieces: dict[int, str] = {}
    special: set[int] = set()
    for entry in [*({"content": piece, "id": token} for piece, token in vocabulary.items()), *added]:
        piece, token = (entry.get("content"), entry.get("id")) if isinstance(entry, dict) else (None, None)
        if not isinstance(piece, str) or type(token) is not int or token < 0 or not _is_text(piece):
            raise UnreadableCheckpointError(f"tokenizer.json: {shown(entry)} is not a piece and its id")
        if pieces.setdefault(token, piece) != piece:
            raise UnreadableCheckpointError(f"tokenizer.json: {shown(piece)} has the id of {shown(pieces[token])}")
        if entry.get("special"):
            special.add(token)
    return pieces, special


def _is_text(piece: str) -> bool:
    """Return whether a piece can be written in UTF-8: JSON can escape halves of characters."""
    return not any("\ud800" <= character <= "\udfff" for character in piece)


def _named(config: Section, pieces: dict[int, str]) -> set[int]:
    config.expect("clean_up_tokenization_spaces", None, False)
    names = [config.get(key) for key in _SPECIAL]
    for key in _MORE_SPECIAL:
        more = config.get(key) or []
        names += more.values() if isinstance(more, dict) else more if isinstance(more, list) else [more]
    contents = [name.get("content") if isinstance(name, dict) else name for name in names]
    return {token for token, piece in pieces.items() if piece in contents}
