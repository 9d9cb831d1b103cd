"""The kinds of mixer and feed-forward that layers are made of, one subject a module.

A kind is a frozen record of its geometry that answers two questions: which weight tensors it has
(`tensors(hidden_size)`), and, for mixers, what it keeps of a sequence (`caches()`).
"""
