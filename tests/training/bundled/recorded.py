"""A synthesizer that plays recordings, for what does not depend on a real one."""

import sys

from tests.conftest import GOLDEN
from training.bundled.flite import Flite

# Its voices, and further effects of their commands.
ALICE, BOB, MUTE, STUCK = "alice", "bob", "mute", "stuck"
SENTENCE = "she wore the heavy coat"


class Recorded(Flite):
    name = "recorded"
    seconds_to_speak = 5.0

    def command(self, voice, manner, sentence, wave):
        if voice == MUTE:
            return ["false"]
        if voice == STUCK:
            return [sys.executable, "-c", "import signal; signal.pause()"]
        clip = {ALICE: "awb-4s", BOB: "espeak-2s"}[voice]
        return ["cp", str(GOLDEN / "clips" / f"{clip}.wav"), str(wave)]
