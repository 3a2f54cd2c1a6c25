"""A request for a transcript, from its form to its answer."""
