"""Extensions of the kernel: each room uses public names of the kernel, and can be deleted."""
