"""How many texts get the right class, and what did it take to learn that?"""
