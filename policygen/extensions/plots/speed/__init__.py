"""The speed benchmark: this project side by side with other ways of doing the same."""
