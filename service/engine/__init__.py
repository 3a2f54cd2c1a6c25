"""The engine process, which owns the models and the device, and the code of the front that starts and replaces it."""
