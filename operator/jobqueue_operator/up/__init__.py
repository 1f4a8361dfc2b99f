"""`jobqueue up`: a manifest's classes on this machine, by the same observe → plan → act as in a cluster."""
