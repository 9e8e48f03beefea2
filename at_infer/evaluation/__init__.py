"""Scores against labels."""
