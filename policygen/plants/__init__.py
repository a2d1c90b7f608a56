"""Plants: equations of motion fitted to played episodes, and episodes simulated with them."""
