"""The wire: connections, the first gate, and bodies."""
