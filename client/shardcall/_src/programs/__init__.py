"""Calls that nobody waits for, recorded or traced as programs."""
