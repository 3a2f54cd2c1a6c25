"""Synthetic speech to train on: sentences said by the speech synthesizers that Debian packages."""
