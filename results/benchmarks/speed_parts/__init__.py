"""Parts of the speed benchmark: what is measured (`sections`), and how rows are made and shown (`rows`)."""
