"""Prompts: what they show, and the templates that render them."""
