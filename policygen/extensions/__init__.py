"""Extensions of the kernel: each uses public names of the kernel, and can be deleted.

An extension that enters something into a registry of the kernel (statements, refine methods, ...) stands in `ENTERING`,
and enters it when its package is imported. The others are imported by the library and the commands that use them.
"""

ENTERING = ("plants", "objectives", "learners", "simplify")
