"""Where a long recording is cut into utterances: voice activity detection, and the rule that places the cuts."""
