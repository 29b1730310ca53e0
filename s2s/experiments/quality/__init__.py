"""How good are the translations, and what did it take to learn them?"""
