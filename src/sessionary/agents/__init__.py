"""Runners: who answers. Each speaks one outside language behind the Runner port."""
