"""`make nemo-check`: the same tokens from NeMo and from load_model for the same checkpoint and recordings.

Runs in an environment of its own that has NeMo 3.0.0 and not Steno's service. Both sides get the same samples, one
recording at a time, in float32 on the CPU. Compared are CTC's best label of every encoder frame, blank included, and
the texts that NeMo's own `transcribe()` gives, by each of the model's decoders. Prints a line for each source and
one JSON line; exits with 1 if anything differs.
"""

import argparse
import json
import logging
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import soundfile
import torch

from models import Transcriber, checkpoint_path, load_model


@dataclass(frozen=True)
class Comparison:
    """One recording: what differs, how far log-probabilities are apart, and the smallest lead of a best label.

    Without a CTC head there are no frames. Words are those of all decoders' texts.
    """

    source: str
    words: int
    frames: int
    frames_that_differ: int
    text_differs: bool
    distance: float
    lead: float


class NeMo:
    """A checkpoint as NeMo runs it."""

    def __init__(self, path: Path) -> None:
        from nemo.collections.asr.models import ASRModel

        self._model = ASRModel.restore_from(str(path), map_location="cpu")

    @torch.no_grad()
    def log_probabilities(self, samples: torch.Tensor) -> torch.Tensor:
        """CTC's log-probabilities [frames, labels + 1] of one recording."""
        self._model.eval()  # transcribe() leaves the encoder in training mode
        scores, frames, *_ = self._model(input_signal=samples[None], input_signal_length=torch.tensor([len(samples)]))
        if hasattr(self._model, "ctc_decoder"):  # a hybrid's are encoder frames
            scores = self._model.ctc_decoder(encoder_output=scores)
        return scores[0, : int(frames[0])]

    def text(self, path: Path, decoder: str) -> str:
        """The transcript of a file."""
        if hasattr(self._model, "ctc_decoder"):
            self._model.change_decoding_strategy(decoder_type="ctc" if decoder == "ctc" else "rnnt", verbose=False)
        prompt = {"source_lang": "en", "target_lang": "en", "pnc": "yes"} if decoder == "aed" else {}
        (hypothesis,) = self._model.transcribe([str(path)], batch_size=1, verbose=False, **prompt)
        return str(hypothesis.text).strip()


@torch.no_grad()
def our_log_probabilities(model: Transcriber, samples: torch.Tensor) -> torch.Tensor:
    """CTC's log-probabilities [frames, labels + 1] of one recording."""
    encoded, frames = model.encode(*model.features([samples.numpy()]))
    return model.model.network.ctc(encoded).log_softmax(-1)[0, : int(frames[0])]


def compare(model: Transcriber, nemo: NeMo, path: Path, source: str) -> Comparison:
    """Compare one recording, a file at the model's sample rate."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == model.sample_rate, f"{path} has {rate} Hz"
    waveform = torch.from_numpy(samples)
    theirs = ours = torch.zeros(1, 2)  # as if there were one frame, where there is no CTC
    if "ctc" in model.decoders:
        theirs, ours = nemo.log_probabilities(waveform), our_log_probabilities(model, waveform)
    assert theirs.shape == ours.shape, f"{path}: {list(theirs.shape)} in NeMo, {list(ours.shape)} here"
    texts = {decoder: model.transcribe([samples], decoder=decoder)[0].text for decoder in model.decoders}
    best = theirs.topk(2).values
    return Comparison(
        source=source,
        words=sum(len(text.split()) for text in texts.values()),
        frames=len(theirs) if "ctc" in model.decoders else 0,
        frames_that_differ=int((theirs.argmax(-1) != ours.argmax(-1)).sum()),
        text_differs=any(nemo.text(path, decoder) != text for decoder, text in texts.items()),
        distance=float((theirs - ours).abs().max()),
        lead=float((best[:, 0] - best[:, 1]).min()),
    )


def recordings(manifest: Path, split: str) -> list[tuple[Path, str]]:
    """Files of a split, and their sources."""
    rows = map(json.loads, manifest.read_text(encoding="utf-8").splitlines())
    return [
        (manifest.parent / row["audio"], row.get("source", manifest.stem))
        for row in rows
        if split == "all" or row.get("split", split) == split
    ]


def summary(comparisons: list[Comparison]) -> dict[str, float]:
    """What is printed of some recordings."""
    return {
        "clips": len(comparisons),
        "words": sum(one.words for one in comparisons),
        "frames": sum(one.frames for one in comparisons),
        "frames_that_differ": sum(one.frames_that_differ for one in comparisons),
        "texts_that_differ": sum(one.text_differs for one in comparisons),
        "largest_distance": float(f"{max(one.distance for one in comparisons):.1e}"),
        "smallest_lead": float(f"{min(one.lead for one in comparisons):.1e}"),
    }


def main() -> int:
    """Compare, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make nemo-check", description=__doc__)
    parser.add_argument("model", help="a checkpoint, or bundled")
    parser.add_argument("manifest", type=Path, help="JSON Lines with audio, source and split")
    parser.add_argument("--split", default="dev", help="of the manifest, or all; lines without one belong to each")
    args = parser.parse_args()
    # NeMo's imports warn of much that does not concern us, and its transcribe() does so for every file.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    model, nemo = load_model(args.model, language_model="none"), NeMo(checkpoint_path(args.model))
    found = [compare(model, nemo, *recording) for recording in recordings(args.manifest, args.split)]
    whole = summary(found)
    print("source", *whole)
    for source in sorted({one.source for one in found}):
        print(source, *summary([one for one in found if one.source == source]).values())
    print(json.dumps({"check": "nemo", "model": checkpoint_path(args.model).name, **whole}))
    return 1 if whole["frames_that_differ"] or whole["texts_that_differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
