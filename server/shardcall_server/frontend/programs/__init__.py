"""Compiled programs: which call finds which, and what `auto` stands for."""
