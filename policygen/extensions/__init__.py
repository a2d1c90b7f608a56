"""What is built on the kernel: each room reads runs through the kernel's public names, and can be deleted."""
