"""What a proposal must show to become the best: the judge applies it, and prompts say it."""

from __future__ import annotations

# A challenger must be better at this one-sided level of the paired test. Close calls get up to so many times the
# episodes; on the most, where waiting no longer helps and both are nearly as good, less certainty is enough.
SIGNIFICANCE = 0.1
LAST_SIGNIFICANCE = 0.2
PROLONGATIONS = (2, 4)
