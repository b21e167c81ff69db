"""Fovea under PyTorch."""
