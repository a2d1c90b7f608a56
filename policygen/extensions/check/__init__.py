"""A verified envelope of a policy: bounds that interval arithmetic proves, and what random points find."""
