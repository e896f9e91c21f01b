"""Porting a model: what its files hold, how it was trained, its entropy. Nothing imports it."""
