"""The operator's side of queue databases: looking, deciding nothing, and carrying out what was decided there."""
