"""The orphan guard: a helper process that ends what is left when the supervisor itself is gone."""
