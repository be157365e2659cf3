"""q.k with a factor for each dimension and offset (m3): the product, and gated.cpp, which computes it on a CPU."""
