"""`at-infer score --ray`: one input cut into splits, scored by the workers of a Ray cluster, kept split by split."""
