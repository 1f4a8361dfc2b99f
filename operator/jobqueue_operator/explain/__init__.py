"""`jobqueue explain`: decisions of a live queue or of a record in words, and records replayed with another spec."""
