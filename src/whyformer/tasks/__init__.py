"""What a model says: how a target is written, what was predicted, and how likely it is."""
