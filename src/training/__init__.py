"""A small Transformer on real images, to ask whether suppressing its noise hurts accuracy.

The only room of the house that imports jax. Layers, lowest first: data, model -> protocols,
geometry -> train -> plan -> results. ``python -m training`` makes the stored results.
"""
