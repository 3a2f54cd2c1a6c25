"""Benchmarks; each prints one table and, last, one line of JSON."""
