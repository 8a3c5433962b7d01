"""PostgreSQL: the same transactions on pooled connections."""
