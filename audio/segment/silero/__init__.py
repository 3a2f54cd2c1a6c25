"""Silero's network for detecting speech, under the MIT licence, as matrix products, which take a third of the time.

Made by audio/segment/silero/build.py of commit cd15705b from silero_vad_16k_sequence.onnx of the package silero-vad
6.2.3; the weights are the original's.
"""
