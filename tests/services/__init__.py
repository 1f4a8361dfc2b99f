"""Real services and bounded waiting, for the tests."""
