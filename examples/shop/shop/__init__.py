"""A shop: what its workers do in the background."""
