"""Numerical search around a proposal: structure comes from the model, numbers from here."""
