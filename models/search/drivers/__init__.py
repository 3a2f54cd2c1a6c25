"""Drivers repeat the step of a search until all rows are done."""
