"""Subtitles of a stream: the cues of each part as it comes; joined they are a file of srt or vtt."""

from collections.abc import Sequence
from dataclasses import replace

from transcripts.subtitles import VTT_HEAD, Cue, CueSize, cues, srt_block, vtt_block
from transcripts.transcript import Word


class SubtitleStream:
    """Writes cues in the order of time, as WebVTT or SubRip; ``text`` is all that is written so far.

    A brief cue is shown for longer than its words last, but not into its speaker's next cue. So it may have to wait
    for that one.
    """

    def __init__(self, *, is_vtt: bool, size: CueSize) -> None:
        self.text = ""
        self._is_vtt = is_vtt
        self._size = size
        self._count = 0
        self._held: list[Cue] = []
        self._unsettled: dict[str | None, Cue] = {}  # by speaker: the cue whose end may still change

    def add(self, words: Sequence[Word], speaker: str | None = None) -> str:
        """Return the cues that nothing later can change or precede; "" if there are none.

        Parts come in order, and so do the words of each speaker, with their times.
        """
        shown = cues(words, self._size, speaker)
        if not shown:
            return ""
        if (before := self._unsettled.pop(speaker, None)) is not None:
            ends = min(before.end, max(before.start, shown[0].start))
            self._held[self._held.index(before)] = replace(before, end=ends)
        self._held += shown
        self._held.sort(key=lambda cue: cue.start)
        if words[-1].end is not None and shown[-1].end > words[-1].end:
            self._unsettled[speaker] = shown[-1]
        # Another speaker's next part may begin as early as this one.
        return self._written(None if speaker is None else shown[0].start)

    def end(self) -> str:
        """Return the remaining cues."""
        self._unsettled.clear()
        return self._written(None)

    def _written(self, before: float | None) -> str:
        """Return the first cues that are settled, and begin no later than ``before``."""
        unsettled = list(self._unsettled.values())
        blocks = []
        while self._held and self._held[0] not in unsettled and (before is None or self._held[0].start <= before):
            self._count += 1
            cue = self._held.pop(0)
            blocks.append(vtt_block(cue) if self._is_vtt else srt_block(self._count, cue))
        if self._is_vtt and not self.text:
            blocks.insert(0, VTT_HEAD)
        delta = ("\n" if self.text and blocks else "") + "\n".join(blocks)
        self.text += delta
        return delta
