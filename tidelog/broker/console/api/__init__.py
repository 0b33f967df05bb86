"""Subjects of the console, one module each: the shapes of its answers, and the routes that give them."""
