"""The verified envelope of a policy: claims that interval arithmetic proves or random points test."""
