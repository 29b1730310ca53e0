"""Out of s2s: a run as other engines and other people's hands take it."""
