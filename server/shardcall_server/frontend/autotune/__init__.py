"""Chooses among the strategies that serve a call by timing them."""
