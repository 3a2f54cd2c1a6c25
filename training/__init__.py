"""Training speech recognition models: data, distillation, the loop, export."""
