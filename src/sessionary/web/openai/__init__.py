"""The routes under `/v1` that speak OpenAI's HTTP interface: its clients talk to the agents configured here."""
