"""From accepted utterances to batches and back: gates, buckets, batcher, ledger."""
