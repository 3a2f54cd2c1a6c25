"""What a device can do: precisions, memory, processors, and layouts of weights that it multiplies fast."""
