"""The same weights and the same audio through Steno and its peers, in turns in one process."""
