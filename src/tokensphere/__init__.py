"""Attention dynamics on the sphere: the mathematics behind the book.

Layers, lowest first: sphere -> attention, harmonics -> circle, globe, flow, layers, sde ->
clusters, meanfield. The exact theory (two_tokens, two_clusters) stands beside the simulations
and shares no code with them, so that one can check the other.
"""
