"""Mininet has its examples here; none are needed to read a topology."""
