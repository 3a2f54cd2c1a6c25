"""Drivers repeat a form of the search until every row is done."""
