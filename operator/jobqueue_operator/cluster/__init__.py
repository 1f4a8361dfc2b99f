"""The operator in a cluster: watches manifests, looks at their databases, plans for all of them, and carries it out."""
