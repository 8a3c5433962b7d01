"""The tables: typed rows and the queries that read and write them."""
