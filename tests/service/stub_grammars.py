"""A stand-in for the process with NeMo's grammars: it rewrites some phrases, and one phrase ends it."""

import json
import os
import sys
from pathlib import Path

WRITTEN = {"how are you": "hru", "geht es ihnen": "25", "bonjour": "1 234"}

for line in sys.stdin:
    phrases = json.loads(line)["phrases"]
    if any("today" in phrase and "fatal" in sys.argv[1] for phrase in phrases):
        os.abort()
    marker = Path(sys.argv[1])
    if "half" in marker.parts and not marker.exists():
        marker.mkdir(parents=True)
        sys.stdout.write('["half an ans')
        sys.stdout.flush()
        os.abort()
    answers = []
    for phrase in phrases:
        for spoken, written in WRITTEN.items():
            phrase = phrase.replace(spoken, written)
        answers.append(phrase)
    sys.stdout.write(json.dumps(answers) + "\n")
    sys.stdout.flush()
