"""Model server: the supervisor of Triton, its repository, weights and executors."""
